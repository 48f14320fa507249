//! The docstrings of the public functions of the op table, in the style of Google's Python guide.

use crate::dtype::DTypeSet;
use crate::row::{Class, Promotion, ResultDType, Row};

impl Row {
    /// The docstring of the row's public function. That of an elementwise row is the row's doc comment, with the
    /// operands listed before the other arguments, and with what the function returns before the example.
    pub fn document(&self) -> String {
        let lines: Vec<&str> = self.text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let mut paragraphs = lines.split(|line| line.is_empty()).skip(1).map(|lines| lines.join("\n")).peekable();
        let mut parts = vec![self.doc.to_owned()];
        if self.class != Class::Elementwise {
            parts.extend(paragraphs);
            return parts.join("\n\n");
        }
        while let Some(paragraph) =
            paragraphs.next_if(|text| !text.starts_with("Args:") && !text.starts_with("Example:"))
        {
            parts.push(paragraph);
        }
        let mut arguments = self.operands_text();
        if let Some(others) = paragraphs.next_if(|text| text.starts_with("Args:")) {
            arguments.push_str(others.trim_start_matches("Args:"));
        }
        parts.push(arguments);
        parts.push(self.result_text());
        parts.extend(paragraphs);
        parts.join("\n\n")
    }

    /// The `Args:` section of an elementwise function. Operands past the second have a line in the row's doc comment.
    fn operands_text(&self) -> String {
        let floats = self.accepts.intersects(DTypeSet::FLOAT);
        let input = match (self.promotion, floats, self.accepts.intersects(DTypeSet::BOOL)) {
            (Promotion::Float, _, _) => "A tensor; bools and integers are converted to the default dtype.",
            (_, true, true) => "A tensor of any dtype.",
            (_, true, false) => "A tensor of any dtype but bool.",
            (_, false, true) => "A tensor of integers or bools.",
            (_, false, false) => "A tensor of integers.",
        };
        let mut text = format!("Args:\n    {}: {input}", self.parameters[0]);
        if let [first, second] = self.parameters {
            let kind = if self.tensors_only { "A tensor" } else { "A tensor or a number" };
            text +=
                &format!("\n    {second}: {kind} that broadcasts with `{first}`; both are promoted to a common dtype.");
        }
        text
    }

    /// The `Returns:` section of an elementwise function.
    fn result_text(&self) -> String {
        let shape = match self.parameters {
            [input] => format!("shape of `{input}`"),
            [first, second] => format!("shape that `{first}` and `{second}` broadcast to"),
            _ => "shape that all operands broadcast to".to_owned(),
        };
        let dtype = if self.result == ResultDType::Bool { ", of dtype bool" } else { "" };
        let gradient = if self.grad.is_some() { "" } else { " It has no gradient." };
        format!("Returns:\n    A tensor of the {shape}{dtype}.{gradient}")
    }
}

#[cfg(test)]
mod tests {
    use crate::Op;

    #[test]
    fn a_docstring_has_the_operands_and_the_result_between_the_formula_and_the_example() {
        let text = "\
Sum of two tensors, elementwise; logical or on bools.

    output = input + alpha * other

Args:
    input: A tensor of any dtype.
    other: A tensor or a number that broadcasts with `input`; both are promoted to a common dtype.
    alpha: The factor of `other`.

Returns:
    A tensor of the shape that `input` and `other` broadcast to.

Example:
    >>> gt.add(gt.tensor([1.0, 2.0]), 10)
    tensor([11., 12.])
    >>> gt.add(gt.tensor([1.0, 2.0]), gt.tensor([[1.0], [2.0]]), alpha=10)
    tensor([[11., 12.],
            [21., 22.]])";
        assert_eq!(Op::Add.row().document(), text);
    }

    #[test]
    fn a_docstring_of_another_class_is_the_doc_comment() {
        assert_eq!(Op::Matmul.row().document(), "Matrix product over the last two axes; leading axes broadcast.");
    }
}
