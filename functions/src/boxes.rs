//! Boxes in images: which of them to keep, and the part of feature maps that each covers.
//!
//! Both wait for the boxes' coordinates. They are computed on the host in the boxes' precision, as PyTorch's
//! torchvision does: numbers in double precision, rounded after each operation.

use crate::common::{check_implemented, zeros};
use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{DType, OpError, Scalar};
use std::cmp::Ordering;

/// The memory that one product of [`roi_align`] may take.
const PRODUCT_BYTES_MAX: i64 = 64 << 20;

/// The elements of a tensor, and how results in its precision are rounded.
fn coordinates(tensor: Expr<'_>) -> Result<(Vec<f64>, impl Fn(f64) -> f64 + Copy + 'static)> {
    let dtype = computed(tensor.dtype()?);
    let elements = tensor.detach().to(dtype).elements()?;
    let is_single = dtype == DType::F32;
    let round = move |x: f64| if is_single { f64::from(x as f32) } else { x };
    Ok((elements.into_iter().map(Scalar::to_f64).collect(), round))
}

/// The dtype in which tensors of a dtype are computed.
fn computed(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Checks that two tensors have one dtype.
///
/// # Errors
/// They do not.
fn check_same_dtype(name: &str, (a, b): (&str, &str), one: Expr<'_>, other: Expr<'_>) -> Result<()> {
    let (dtype, second) = (one.dtype()?, other.dtype()?);
    if dtype == second {
        return Ok(());
    }
    Err(OpError::runtime(format!(
        "{name}(): {a} and {b} should have the same type, but they are gt.{} and gt.{}",
        dtype.name(),
        second.name()
    )))
}

/// A region along one axis of feature maps.
#[derive(Clone, Copy)]
struct Span {
    begin: f64,
    end: f64,
}

/// The weights of pixels along one axis, for each region and each of the parts that it is divided into.
struct PixelWeights {
    /// `(regions, parts, pixels)`.
    weights: Vec<f64>,
    parts: usize,
    pixels: usize,
    /// For each region, the first pixel that has a weight, and the one after the last.
    covered: Vec<(usize, usize)>,
}

impl PixelWeights {
    /// The weights by which a part of a region is the average of bilinear samples at equal distances: `samples` of
    /// them, or as many as the part has pixels if that is not positive. Samples more than a pixel outside count as 0.
    /// There are parts and pixels.
    fn new(
        spans: &[Span],
        (parts, pixels): (usize, usize),
        samples: i64,
        aligned: bool,
        round: impl Fn(f64) -> f64,
    ) -> PixelWeights {
        let mut weights = vec![0.0; spans.len() * parts * pixels];
        let mut covered = vec![(0, 1); spans.len()];
        let ends = pixels as f64;
        let regions = spans.iter().zip(&mut covered).zip(weights.chunks_exact_mut(parts * pixels));
        for ((span, covered), weights) in regions {
            let size = round(span.end - span.begin);
            let size = if aligned { size } else { size.max(1.0) };
            let part = round(size / parts as f64);
            let count = if samples > 0 { samples as f64 } else { part.ceil().max(0.0) };
            let step = round(part / count.max(1.0));
            let (mut first, mut end) = (pixels, 0);
            for (place, weights) in weights.chunks_exact_mut(pixels).enumerate() {
                let begin = round(span.begin + round(place as f64 * part));
                // The samples between -1 and the number of pixels; the others would count as 0. Without a distance
                // between them, all are at one place.
                let (a, b) = ((-1.0 - begin) / step, (ends - begin) / step);
                let (from, to) = if step == 0.0 { (0.0, count) } else { (a.min(b) - 1.5, a.max(b) + 1.5) };
                let (from, to) = (from.floor().max(0.0).min(count), to.ceil().max(0.0).min(count));
                for sample in from as u64..to as u64 {
                    let at = round(begin + round(round(sample as f64 + 0.5) * step));
                    if !(-1.0..=ends).contains(&at) {
                        continue;
                    }
                    let at = at.clamp(0.0, ends - 1.0);
                    let low = at as usize;
                    let (high, share) = ((low + 1).min(pixels - 1), at - low as f64);
                    weights[low] += (1.0 - share) / count;
                    weights[high] += share / count;
                    (first, end) = (first.min(low), end.max(high + 1));
                }
            }
            if first < end {
                *covered = (first, end);
            }
        }
        PixelWeights { weights, parts, pixels, covered }
    }

    /// The pixels that some regions cover.
    fn range(&self, regions: &[usize]) -> (usize, usize) {
        let all = regions.iter().map(|region| self.covered[*region]);
        all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
    }

    /// The weights of some regions: `(regions, parts, last - first)`.
    fn tensor<'g>(
        &self,
        g: &'g Builder<'g>,
        regions: &[usize],
        (first, last): (usize, usize),
        dtype: DType,
    ) -> Expr<'g> {
        let of_region = |region: &usize| {
            let rows = *region * self.parts..(*region + 1) * self.parts;
            rows.flat_map(|row| &self.weights[row * self.pixels + first..row * self.pixels + last])
        };
        let numbers: Vec<f64> = regions.iter().flat_map(of_region).copied().collect();
        g.floats(&numbers, &[regions.len(), self.parts, last - first].map(|size| size as i64), dtype)
    }
}

functions! {
    /// Indices of the boxes that remain when boxes that overlap a better one are left out, best first.
    ///
    /// The algorithm is the greedy one of Girshick et al., "Rich feature hierarchies for accurate object detection and
    /// semantic segmentation" (2014).
    ///
    /// Args:
    ///     dets: Boxes as x1, y1, x2, y2: `(N, 4)`.
    ///     scores: The boxes' scores: `(N,)`.
    ///     iou_threshold: A box is left out if its intersection with a better one is more than this part of their
    ///         union.
    [module("_boxes")]
    fn nms(g, dets: Expr<'g>, scores: Expr<'g>, iou_threshold: f64) -> Result<Expr<'g>> {
        for (name, tensor, rank) in [("boxes", dets, 2), ("scores", scores, 1)] {
            let found = tensor.rank()?;
            if found != rank {
                return Err(OpError::runtime(format!("{name} should be a {rank}d tensor, got {found}D")));
            }
        }
        let (boxes, count) = (dets.sizes()?, scores.sizes()?[0]);
        if boxes[1] != 4 {
            return Err(OpError::runtime(format!("boxes should have 4 elements in dimension 1, got {}", boxes[1])));
        }
        if boxes[0] != count {
            return Err(OpError::runtime(format!(
                "boxes and scores should have same number of elements in dimension 0, got {} and {count}",
                boxes[0]
            )));
        }
        check_same_dtype("nms", ("boxes", "scores"), dets, scores)?;
        // One tensor is fetched: each fetch waits.
        let (numbers, round) = coordinates(g.cat(&[dets.detach().flatten(0, -1), scores.detach()], 0))?;
        let (boxes, scores) = numbers.split_at(4 * count as usize);
        let boxes = boxes.as_chunks::<4>().0;
        let areas: Vec<f64> = boxes.iter().map(|[x1, y1, x2, y2]| round(round(x2 - x1) * round(y2 - y1))).collect();
        let mut order: Vec<usize> = (0..boxes.len()).collect();
        order.sort_by(|a, b| {
            let (a, b) = (scores[*a], scores[*b]);
            b.is_nan().cmp(&a.is_nan()).then(b.partial_cmp(&a).unwrap_or(Ordering::Equal))
        });
        let mut kept = Vec::new();
        while let Some(&best) = order.first() {
            kept.push(best as i64);
            let [x1, y1, x2, y2] = boxes[best];
            order.retain(|&other| {
                let [left, top, right, bottom] = boxes[other];
                let width = round(x2.min(right) - x1.max(left)).max(0.0);
                let height = round(y2.min(bottom) - y1.max(top)).max(0.0);
                let shared = round(width * height);
                let union = round(round(areas[best] + areas[other]) - shared);
                let is_covered = round(shared / union) > iou_threshold;
                other != best && !is_covered
            });
        }
        Ok(g.ints(&kept, &[kept.len() as i64]))
    }

    /// Averages of bilinear samples of regions (He et al., "Mask R-CNN", 2017).
    ///
    /// The samples and their averages weight rows and columns separately, so that a region is the product of its rows'
    /// weights, the feature maps and its columns' weights. Regions have no gradient, as in torchvision.
    ///
    /// Args:
    ///     input: Feature maps: `(N, C, H, W)`.
    ///     rois: Regions as index in the batch, x1, y1, x2, y2: `(K, 5)`.
    ///     spatial_scale: The factor from the regions' coordinates to the feature maps'.
    ///     pooled_height: The height of a result.
    ///     pooled_width: The width of a result.
    ///     sampling_ratio: Samples along each side of an element of the result; if not positive, as many as it has
    ///         pixels.
    ///     aligned: Whether pixels' centres are at half coordinates.
    ///
    /// Returns:
    ///     `(K, C, pooled_height, pooled_width)`.
    [module("_boxes")]
    fn roi_align(g, input: Expr<'g>, rois: Expr<'g>, spatial_scale: f64, pooled_height: i64, pooled_width: i64,
        sampling_ratio: i64, aligned: bool) -> Result<Expr<'g>> {
        let (shape, regions) = (input.sizes()?, rois.sizes()?);
        let (&[images, channels, height, width], &[count, 5]) = (shape.as_slice(), regions.as_slice()) else {
            return Err(OpError::runtime(format!(
                "roi_align(): expected input of shape (N, C, H, W) and rois of shape (K, 5), but got {shape:?} and \
                 {regions:?}"
            )));
        };
        for (what, [high, wide]) in [("output size", [pooled_height, pooled_width]), ("size of input", [height, width])] {
            if high < 1 || wide < 1 {
                return Err(OpError::runtime(format!(
                    "roi_align(): expected a positive {what}, but got {high} by {wide}"
                )));
            }
        }
        check_implemented("roi_align_forward_kernel", input, DType::is_float)?;
        check_same_dtype("roi_align", ("input", "rois"), input, rois)?;
        let (numbers, round) = coordinates(rois)?;
        let regions = numbers.as_chunks::<5>().0;
        if let Some([image, ..]) = regions.iter().find(|[image, ..]| !(0.0..images as f64).contains(image)) {
            return Err(OpError::index(format!("roi_align(): a region names image {image}, but input has {images}")));
        }
        let (offset, scale) = (if aligned { 0.5 } else { 0.0 }, round(spatial_scale));
        let spans = |low: usize, high: usize| -> Vec<Span> {
            let place = |at: f64| round(round(at * scale) - offset);
            regions.iter().map(|region| Span { begin: place(region[low]), end: place(region[high]) }).collect()
        };
        let sizes = |parts: i64, pixels: i64| (parts as usize, pixels as usize);
        let columns = spans(1, 3);
        let rows = PixelWeights::new(&spans(2, 4), sizes(pooled_height, height), sampling_ratio, aligned, round);
        let across = PixelWeights::new(&columns, sizes(pooled_width, width), sampling_ratio, aligned, round);
        // Neighbours are computed together, from the part of the maps that they cover.
        let mut order: Vec<usize> = (0..regions.len()).collect();
        let middle = |region: &usize| columns[*region].begin + columns[*region].end;
        order.sort_by(|a, b| {
            regions[*a][0].total_cmp(&regions[*b][0]).then_with(|| middle(a).total_cmp(&middle(b)))
        });
        let dtype = computed(input.dtype()?);
        let bytes = dtype.size() as i64 * channels * pooled_height * width;
        let at_once = (PRODUCT_BYTES_MAX / bytes.max(1)).max(1) as usize;
        let maps = input.to(dtype);
        let mut parts = Vec::new();
        for of_image in order.chunk_by(|a, b| regions[*a][0] == regions[*b][0]) {
            let map = maps.select(0, regions[of_image[0]][0] as i64);
            for chosen in of_image.chunks(at_once) {
                let (high, wide) = (rows.range(chosen), across.range(chosen));
                let within = |map: Expr<'g>, axis: i64, (first, last): (usize, usize)| {
                    map.slice(axis, Some(first as i64), Some(last as i64), None)
                };
                let covered = within(within(map, 1, high), 2, wide);
                let (taken, across_len) = (chosen.len() as i64, (wide.1 - wide.0) as i64);
                // The map is turned, rather than the larger result of its rows.
                let by_rows = covered.permute(&[1, 0, 2]).flatten(1, 2);
                let low = rows.tensor(g, chosen, high, dtype).flatten(0, 1).matmul(by_rows);
                let low = low.reshape(&[taken, pooled_height * channels, across_len]);
                parts.push(low.matmul(across.tensor(g, chosen, wide, dtype).transposed()));
            }
        }
        let sizes = [count, pooled_height, channels, pooled_width];
        if parts.is_empty() {
            return Ok(zeros(g, &sizes, input.dtype()?).permute(&[0, 2, 1, 3]));
        }
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, region)| places[*region] = place as i64);
        let pooled = g.cat(&parts, 0).index_select(0, g.ints(&places, &[count]));
        Ok(pooled.reshape(&sizes).permute(&[0, 2, 1, 3]).to(input.dtype()?))
    }
}
