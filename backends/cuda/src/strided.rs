//! Copies between layouts.

use crate::driver::Args;
use crate::kernels::{Key, Template};
use crate::launch::Walk;
use crate::{CudaBackend, Result, Tensor, failed};
use gt_backend::Loops;
use gt_ops::DType;

/// Elements of 1, 2, 4 or 8 bytes, whatever they are: the dtype stands for the size.
static COPY: Template = Template {
    name: "copy",
    includes: &["types.cuh", "walk.cuh"],
    code: |key| {
        let name = key.name();
        let bits = key.dtypes[0].map_or(8, |dtype| 8 * dtype.size());
        format!(
            "GT_KERNEL(256) {name}(u{bits}* to, const u{bits}* from, i64 elements, Walk<2> walk) {{
    GT_FOR_EACH(i, elements) {{
        i64 at[2];
        walk.offsets(i, at);
        to[at[0]] = from[at[1]];
    }}
}}"
        )
    },
    catalogue: || [DType::U8, DType::I16, DType::I32, DType::I64].map(copy_key).to_vec(),
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&COPY];

fn copy_key(dtype: DType) -> Key {
    let of_size = match dtype.size() {
        1 => DType::U8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    };
    Key::new(&COPY, None, Some(of_size), 0)
}

impl CudaBackend {
    /// Copies the elements of one tensor into another of the same shape and dtype that shares no memory with it.
    pub(crate) fn copy(&mut self, to: &Tensor, from: &Tensor) -> Result<()> {
        let elements = to.numel();
        if elements == 0 {
            return Ok(());
        }
        if to.contiguous && from.contiguous {
            // SAFETY: both are tensors of so many bytes.
            return unsafe { self.driver.copy(to.ptr(), from.ptr(), to.meta.bytes(), self.stream) }.map_err(failed);
        }
        let function = self.kernels.get(&copy_key(to.meta.dtype))?;
        let loops = Loops::new(&to.meta.shape, [&to.strides, &from.strides]);
        let mut args = Args::new();
        args.push(to.ptr()).push(from.ptr()).push(elements as i64).push(Walk::new(&loops, [to.size(), from.size()]));
        let grid = self.grid_stride(elements);
        // SAFETY: the arguments are the kernel's, and the layouts stay within the tensors.
        unsafe { self.launch(function, grid, &args) }
    }

    /// The same elements in row-major order without gaps, by a copy if need be.
    pub(crate) fn contiguous(&mut self, t: &Tensor) -> Result<Tensor> {
        if t.contiguous {
            return Ok(t.clone());
        }
        let mut out = self.new_tensor(&t.meta)?;
        self.copy(&out, t)?;
        out.checks = t.checks.clone();
        Ok(out)
    }

    /// A tensor of `t`'s elements that nobody else sees: `t` itself when the caller gave it up.
    #[expect(dead_code, reason = "for the ops that change a copy")]
    pub(crate) fn private_copy(&mut self, t: &Tensor, given_up: bool) -> Result<Tensor> {
        if given_up && t.contiguous && t.is_sole_owner() {
            return Ok(t.clone());
        }
        let mut out = self.new_tensor(&t.meta)?;
        self.copy(&out, t)?;
        out.checks = t.checks.clone();
        Ok(out)
    }
}
