//! A picture as SVG.

use super::scene::{CHARACTER_WIDTH, DrawnShape, Rgb, Scene};
use std::io::Write;

/// Writes a scene as an SVG document.
///
/// # Errors
/// The writer's.
pub fn write(out: &mut impl Write, scene: &Scene) -> std::io::Result<()> {
    let Scene { width, height, .. } = scene;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"{}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>",
        CHARACTER_WIDTH / 0.6
    )?;
    for shape in &scene.shapes {
        match shape {
            DrawnShape::Rectangle([x, y, width, height], color, text) => {
                let fill = hex(*color);
                write!(
                    out,
                    "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{fill}\""
                )?;
                match text {
                    Some(text) => writeln!(out, "><title>{}</title></rect>", escaped(text))?,
                    None => writeln!(out, "/>")?,
                }
            }
            DrawnShape::Segment([x1, y1, x2, y2], color) => {
                let color = hex(*color);
                writeln!(
                    out,
                    "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" stroke=\"{color}\" \
                     stroke-opacity=\"0.7\"/>"
                )?;
            }
            DrawnShape::Disc([x, y, radius], color) => {
                writeln!(out, "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"{radius:.2}\" fill=\"{}\"/>", hex(*color))?;
            }
            DrawnShape::Label([x, y], color, text) => {
                let (color, text) = (hex(*color), escaped(text));
                writeln!(out, "<text x=\"{x:.2}\" y=\"{y:.2}\" fill=\"{color}\">{text}</text>")?;
            }
        }
    }
    writeln!(out, "</svg>")
}

/// A colour as `#1a2b3c`.
pub fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A text without characters that have a meaning in XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
