//! The docstrings of the public functions of the op table, in the style of Google's Python guide.

use crate::dtype::DTypeSet;
use crate::row::{Promotion, ResultDType, Row};

impl Row {
    /// The docstring of an elementwise row's public function: the row's doc comment, with the operands and what the
    /// function returns before the example.
    pub fn document(&self) -> String {
        let lines: Vec<&str> = self.text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let paragraphs = lines.split(|line| line.is_empty()).skip(1).map(|lines| lines.join("\n"));
        let (examples, before): (Vec<String>, Vec<String>) = paragraphs.partition(|text| text.starts_with("Example:"));
        let sections = [vec![self.doc.to_owned()], before, vec![self.operands_text(), self.result_text()], examples];
        sections.concat().join("\n\n")
    }

    /// The `Args:` section of an elementwise function of one or two operands.
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
Product of two tensors, elementwise; logical and on bools.

    output = input * other

Args:
    input: A tensor of any dtype.
    other: A tensor or a number that broadcasts with `input`; both are promoted to a common dtype.

Returns:
    A tensor of the shape that `input` and `other` broadcast to.

Example:
    >>> gt.mul(gt.tensor([[1.0], [2.0]]), gt.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])";
        assert_eq!(Op::Mul.row().document(), text);
    }
}
