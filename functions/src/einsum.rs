//! `einsum`: sums of products in Einstein's notation.

use crate::declaration::{Operands, functions};
use gt_ops::OpError;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{Autocast, function};

/// The sizes that letters stand for, by the letter's byte.
struct LetterSizes([i64; 256]);

functions! {
    /// Sums of products in Einstein's notation: letters name axes, and those missing from the output are summed over.
    ///
    /// `"ik,kj->ij"`, for example, is `output[i, j] = sum over k of a[i, k] * b[k, j]`: a matrix product. A letter that
    /// occurs twice in one operand takes its diagonal, and `...` stands for any number of axes, which broadcast.
    /// Operands are contracted from left to right, each pair by one matrix product.
    ///
    /// Args:
    ///     equation: A letter for each axis of each operand, with commas between operands, then `->` and the letters of
    ///         the output. Without `->`, the output has the letters that occur once, in alphabetical order.
    ///     operands: The tensors, as arguments or as one sequence.
    ///
    /// Returns:
    ///     A tensor with an axis for each letter of the output.
    ///
    /// Raises:
    ///     RuntimeError: An operand has another number of axes than its letters, or a letter stands for axes of
    ///         different sizes.
    ///
    /// Example:
    ///     >>> a, b = gt.ones(2, 3), gt.ones(3, 4)
    ///     >>> gt.einsum("ik,kj->ij", a, b).shape
    ///     gt.Size([2, 4])
    ///     >>> gt.einsum("bik,bkj->bij", gt.ones(5, 2, 3), gt.ones(5, 3, 4)).shape  # a batch of products
    ///     gt.Size([5, 2, 4])
    ///     >>> gt.einsum("ii", gt.eye(3))  # the trace
    ///     tensor(3.)
    [function().autocast(Autocast::Low)]
    fn einsum(g, equation: &'g str, operands: Operands<'g>) -> Result<Expr<'g>> {
        let mut tensors = operands.0;
        let equation: String = equation.chars().filter(|c| *c != ' ').collect();
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation.as_str(), None),
        };
        let mut terms: Vec<Vec<u8>> = left.split(',').map(|term| term.as_bytes().to_vec()).collect();
        if terms.len() != tensors.len() {
            let more = if terms.len() < tensors.len() { "more" } else { "fewer" };
            return Err(OpError::runtime(format!(
                "einsum(): {more} operands were provided than specified in the equation"
            )));
        }
        let dots = expand_ellipsis(&mut terms, &tensors)?;
        let mut counts = [0u32; 256];
        terms.iter().flatten().for_each(|letter| counts[*letter as usize] += 1);
        for (i, (tensor, term)) in tensors.iter_mut().zip(&mut terms).enumerate() {
            (*tensor, *term) = take_diagonals(i, *tensor, std::mem::take(term))?;
        }
        let mut sizes = LetterSizes([-1; 256]);
        for (i, (term, tensor)) in terms.iter().zip(&tensors).enumerate() {
            for (letter, size) in term.iter().zip(tensor.sizes()?) {
                let known = &mut sizes.0[*letter as usize];
                let seen = if *known < 0 { 1 } else { *known };
                if seen != 1 && size != 1 && seen != size {
                    return Err(OpError::runtime(format!(
                        "einsum(): subscript {} has size {size} for operand {i} which does not broadcast with \
                         previously seen size {seen}",
                        char::from(*letter)
                    )));
                }
                *known = if size == 0 { 0 } else { seen.max(size) };
            }
        }
        let right: Vec<u8> = match right {
            Some(right) => match right.split_once("...") {
                Some((before, after)) => [before.as_bytes(), &dots, after.as_bytes()].concat(),
                None => right.as_bytes().to_vec(),
            },
            None => {
                let once = (0..=255u8).filter(|letter| counts[*letter as usize] == 1 && !dots.contains(letter));
                dots.iter().copied().chain(once).collect()
            }
        };
        for (i, letter) in right.iter().enumerate() {
            if sizes.0[*letter as usize] < 0 {
                return Err(OpError::runtime(format!(
                    "einsum(): output subscript {} does not appear in the equation for any input operand",
                    char::from(*letter)
                )));
            }
            if right[..i].contains(letter) {
                return Err(OpError::runtime(format!(
                    "einsum(): output subscript {} appears more than once in the output",
                    char::from(*letter)
                )));
            }
        }
        for (tensor, term) in tensors.iter_mut().zip(&mut terms) {
            // An axis of size 1 that is larger in another operand broadcasts: it is left out.
            let own = tensor.sizes()?;
            let narrow: Vec<i64> = (0..own.len() as i64)
                .filter(|axis| own[*axis as usize] != sizes.0[term[*axis as usize] as usize])
                .collect();
            if !narrow.is_empty() {
                *tensor = tensor.squeeze(&narrow);
                let mut axis = -1;
                term.retain(|_| {
                    axis += 1;
                    !narrow.contains(&axis)
                });
            }
        }
        let later = |from: usize| -> Vec<u8> {
            right.iter().chain(terms.get(from..).unwrap_or_default().iter().flatten()).copied().collect()
        };
        let (mut result, mut labels) = sum_unwanted(tensors[0], &terms[0], &[&later(1)]);
        for i in 1..tensors.len() {
            let rest = later(i + 1);
            let (other, term) = sum_unwanted(tensors[i], &terms[i], &[&rest, &labels]);
            (result, labels) = sum_unwanted(result, &labels, &[&rest, &term]);
            let pick = |from: &[u8], keep: &dyn Fn(&u8) -> bool| -> Vec<u8> {
                from.iter().copied().filter(|letter| keep(letter)).collect()
            };
            let batch = pick(&labels, &|c| term.contains(c) && rest.contains(c));
            let summed = pick(&labels, &|c| term.contains(c) && !rest.contains(c));
            let rows = pick(&labels, &|c| !term.contains(c));
            let columns = pick(&term, &|c| !labels.contains(c));
            let groups = if batch.is_empty() { 1 } else { 0 };
            let first = sizes.merged(result, &labels, &[&batch, &rows, &summed][groups..]);
            let second = sizes.merged(other, &term, &[&batch, &summed, &columns][groups..]);
            labels = [batch, rows, columns].concat();
            let shape: Vec<i64> = labels.iter().map(|letter| sizes.0[*letter as usize]).collect();
            // Sums of integers are of int64.
            let dtype = first.dtype()?.promote(second.dtype()?);
            let product = first.to(dtype).matmul(second.to(dtype));
            result = if product.sizes()? == shape { product } else { product.reshape(&shape) };
        }
        Ok(arranged(result, &labels, &right))
    }
}

/// The axes in the order of `wanted`, which has the same letters.
fn arranged<'g>(tensor: Expr<'g>, labels: &[u8], wanted: &[u8]) -> Expr<'g> {
    if labels == wanted {
        return tensor;
    }
    let order: Vec<i64> = wanted
        .iter()
        .filter_map(|letter| labels.iter().position(|own| own == letter))
        .map(|axis| axis as i64)
        .collect();
    tensor.permute(&order)
}

/// The operand summed over the axes whose letters are not wanted.
fn sum_unwanted<'g>(tensor: Expr<'g>, term: &[u8], wanted: &[&[u8]]) -> (Expr<'g>, Vec<u8>) {
    let keeps = |letter: &u8| wanted.iter().any(|list| list.contains(letter));
    let axes: Vec<i64> = (0..term.len()).filter(|i| !keeps(&term[*i])).map(|i| i as i64).collect();
    let kept = term.iter().copied().filter(keeps).collect();
    (if axes.is_empty() { tensor } else { tensor.sum(&axes, false) }, kept)
}

impl LetterSizes {
    /// The operand with each group of axes merged into one.
    fn merged<'g>(&self, tensor: Expr<'g>, term: &[u8], groups: &[&Vec<u8>]) -> Expr<'g> {
        let order: Vec<u8> = groups.iter().flat_map(|group| group.iter().copied()).collect();
        let turned = arranged(tensor, term, &order);
        if groups.iter().all(|group| group.len() == 1) {
            return turned;
        }
        let size = |group: &&Vec<u8>| group.iter().map(|letter| self.0[*letter as usize]).product();
        turned.reshape(&groups.iter().map(size).collect::<Vec<i64>>())
    }
}

/// Replaces `...` in the terms by letters that they do not use, as many as the operands' other axes; returns these.
fn expand_ellipsis(terms: &mut [Vec<u8>], tensors: &[Expr<'_>]) -> Result<Vec<u8>> {
    let used: Vec<u8> = terms.concat();
    let free: Vec<u8> = (0..=255u8).filter(|c| !c.is_ascii_alphabetic() && *c != b'.' && !used.contains(c)).collect();
    let find = |term: &[u8]| term.windows(3).position(|part| part == b"...");
    let mut most = 0;
    for (i, (term, tensor)) in terms.iter().zip(tensors).enumerate() {
        let (rank, dotted) = (tensor.rank()?, find(term));
        let named = match dotted {
            Some(at) => [&term[..at], &term[at + 3..]].concat(),
            None => term.clone(),
        };
        if named.iter().any(|letter| !letter.is_ascii_alphabetic()) {
            return Err(OpError::runtime(format!(
                "einsum(): invalid subscript given at index {i} in the equation string, subscripts must be in [a-zA-Z]"
            )));
        }
        let letters = named.len();
        if dotted.is_some() && letters > rank {
            return Err(OpError::runtime(format!(
                "einsum(): the number of subscripts in the equation ({letters}) is more than the number of dimensions \
                 ({rank}) for operand {i}"
            )));
        }
        if dotted.is_none() && letters != rank {
            return Err(OpError::runtime(format!(
                "einsum(): the number of subscripts in the equation ({letters}) does not match the number of \
                 dimensions ({rank}) for operand {i} and no ellipsis was given"
            )));
        }
        if dotted.is_some() {
            most = most.max(rank - letters);
        }
    }
    let dots = free[..most].to_vec();
    for (term, tensor) in terms.iter_mut().zip(tensors) {
        if let Some(at) = find(term) {
            let count = tensor.rank()? + 3 - term.len();
            term.splice(at..at + 3, dots[most - count..].iter().copied());
        }
    }
    Ok(dots)
}

/// The diagonal of an operand along the axes of a letter that it has twice.
fn take_diagonals<'g>(i: usize, mut tensor: Expr<'g>, mut term: Vec<u8>) -> Result<(Expr<'g>, Vec<u8>)> {
    while let Some((first, second)) =
        (0..term.len()).find_map(|a| (a + 1..term.len()).find(|b| term[*b] == term[a]).map(|b| (a, b)))
    {
        let letter = term[first];
        let (m, n) = (tensor.size(first as i64)?, tensor.size(second as i64)?);
        if m != n {
            return Err(OpError::runtime(format!(
                "einsum(): subscript {} is repeated for operand {i} but the sizes don't match, {n} != {m}",
                char::from(letter)
            )));
        }
        tensor = tensor.diagonal(0, first as i64, second as i64);
        term.remove(second);
        term.remove(first);
        term.push(letter);
    }
    Ok((tensor, term))
}
