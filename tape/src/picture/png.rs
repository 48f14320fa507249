//! A picture as PNG, drawn here: rectangles, lines, discs, and labels in a bitmap font.

use super::scene::{DrawnShape, Rgb, Scene};
use font8x8::legacy::BASIC_LEGACY;
use std::io::Write;

/// The most pixels of a picture.
const PIXELS_MAX: f64 = 2e8;
/// Dots per inch at which a pixel of a scene is one of the picture.
const DPI: f64 = 100.0;
/// Pixels of a character of the font, in width and height.
const CHARACTER_PIXELS: usize = 8;

struct Canvas {
    width: usize,
    height: usize,
    scale: f64,
    pixels: Vec<u8>,
}

/// Writes a scene as a PNG with `dpi` dots per inch.
///
/// # Errors
/// The writer's, or the picture would be too large.
pub fn write(out: impl Write, scene: &Scene, dpi: f64) -> std::io::Result<()> {
    let scale = dpi / DPI;
    let [width, height] = [scene.width, scene.height].map(|length| (length * scale).ceil());
    if width * height > PIXELS_MAX {
        let text = format!("a picture of {width} x {height} pixels is too large: choose fewer dots per inch");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
    }
    let [width, height] = [width, height].map(|length| length as usize);
    let mut canvas = Canvas { width, height, scale, pixels: vec![255; width * height * 3] };
    scene.shapes.iter().for_each(|shape| canvas.draw(shape));
    let mut encoder = png::Encoder::new(out, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let per_meter = (dpi / 0.0254).round() as u32;
    let unit = png::Unit::Meter;
    encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: per_meter, yppu: per_meter, unit }));
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&canvas.pixels)?;
    writer.finish()?;
    Ok(())
}

impl Canvas {
    fn draw(&mut self, shape: &DrawnShape) {
        let scale = self.scale;
        match shape {
            DrawnShape::Rectangle([x, y, width, height], color, _) => {
                let [left, right] = span(x * scale, (x + width) * scale);
                let [top, bottom] = span(y * scale, (y + height) * scale);
                for row in top..bottom {
                    for column in left..right {
                        self.set(column, row, *color);
                    }
                }
            }
            DrawnShape::Segment(ends, color) => {
                let [x1, y1, x2, y2] = ends.map(|place| place * scale);
                let steps = (x2 - x1).abs().max((y2 - y1).abs()).ceil().max(1.0);
                for step in 0..=steps as usize {
                    let part = step as f64 / steps;
                    self.set((x1 + (x2 - x1) * part) as i64, (y1 + (y2 - y1) * part) as i64, *color);
                }
            }
            DrawnShape::Disc([x, y, radius], color) => {
                let [x, y, radius] = [x * scale, y * scale, radius * scale];
                for row in (y - radius) as i64..=(y + radius) as i64 {
                    for column in (x - radius) as i64..=(x + radius) as i64 {
                        if (column as f64 - x).hypot(row as f64 - y) <= radius {
                            self.set(column, row, *color);
                        }
                    }
                }
            }
            DrawnShape::Label([x, y], color, text) => {
                let size = scale.round().max(1.0) as i64;
                let mut left = (x * scale) as i64;
                let top = (y * scale) as i64 - size * CHARACTER_PIXELS as i64;
                for letter in text.chars() {
                    self.draw_letter(letter, [left, top], size, *color);
                    left += (CHARACTER_PIXELS as f64 * scale) as i64;
                }
            }
        }
    }

    fn draw_letter(&mut self, letter: char, [left, top]: [i64; 2], size: i64, color: Rgb) {
        let rows = BASIC_LEGACY.get(letter as usize).unwrap_or(&BASIC_LEGACY['?' as usize]);
        for (row, bits) in rows.iter().enumerate() {
            for column in (0..CHARACTER_PIXELS).filter(|column| bits >> column & 1 == 1) {
                let (x, y) = (left + column as i64 * size, top + row as i64 * size);
                for (dx, dy) in (0..size).flat_map(|dx| (0..size).map(move |dy| (dx, dy))) {
                    self.set(x + dx, y + dy, color);
                }
            }
        }
    }

    fn set(&mut self, x: i64, y: i64, color: Rgb) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        if x < self.width && y < self.height {
            let at = (y * self.width + x) * 3;
            self.pixels[at..at + 3].copy_from_slice(&color);
        }
    }
}

/// The pixels from `from` to `to`, at least one.
fn span(from: f64, to: f64) -> [i64; 2] {
    let from = from.round() as i64;
    [from, (to.round() as i64).max(from + 1)]
}
