//! The forms in which a public function is offered: as a function, a method, in place, with `out=`.

/// The dtype that operands are cast to inside an automatic mixed precision region (`gt.autocast`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autocast {
    /// Operands keep their dtypes.
    Keep,
    /// Operands are cast to the region's 16-bit dtype: matrix products and convolutions.
    Low,
    /// Operands are cast to float32: losses, norms.
    Float32,
}

/// The forms of a public function. A declaration begins with [`function`], [`method`] or [`method_only`], and adds to
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// The function's name, where it is not that of its declaration, for instance a keyword of Rust.
    pub name: Option<&'static str>,
    /// The module below `gt` that has the function: `""`, `"nn.functional"`, `"linalg"`, `"special"`, `"fft"`.
    pub module: &'static str,
    /// Other names: NumPy's, and PyTorch's second names. A name with a dot is of a module: `special.softmax`.
    pub aliases: &'static [&'static str],
    /// A function of the module.
    pub function: bool,
    /// A method of tensors.
    pub method: bool,
    /// A method that writes the result to the tensor: `x.exp_()`.
    pub in_place: bool,
    /// The in-place method is a function, too: `gt.exp_(x)`.
    pub in_place_function: bool,
    /// The in-place method writes some of the elements: it takes a tensor that shows an element several times.
    pub of_parts: bool,
    /// The function takes `out=`, a tensor to write the result to.
    pub out: bool,
    /// The tensor of `out=` must have the dtype of the result.
    pub out_same_dtype: bool,
    /// The results are views of an argument: movement ops alone make them.
    pub view: bool,
    /// It is an error if the strides of the argument do not allow a view.
    pub strict_view: bool,
    /// The results are offered as copies, too: `gt.permute_copy(x, …)`, with `out=`.
    pub view_copy: bool,
    /// The result is the argument itself, not a view of it, where there is nothing to do.
    pub or_itself: bool,
    /// The function makes a tensor of a given shape, and takes `dtype`, `device`, `requires_grad` and their like.
    pub creation: bool,
    /// The function draws random numbers, and takes `generator`.
    pub random: bool,
    /// The names of the results, if they are a named tuple.
    pub results: &'static [&'static str],
    /// The parameters whose tensors the function updates in place, such as running statistics. The body returns their
    /// new values after the result; the tensor itself where it stays as it is.
    pub updates: &'static [&'static str],
    /// The operands' dtype under automatic mixed precision.
    pub autocast: Autocast,
    /// Operands of half precision compute in float32, and the results are rounded once.
    pub wide: bool,
}

const NONE: Forms = Forms {
    name: None,
    module: "",
    aliases: &[],
    function: false,
    method: false,
    in_place: false,
    in_place_function: false,
    of_parts: false,
    out: false,
    out_same_dtype: false,
    view: false,
    strict_view: false,
    view_copy: false,
    or_itself: false,
    creation: false,
    random: false,
    results: &[],
    updates: &[],
    autocast: Autocast::Keep,
    wide: false,
};

/// Nothing public: the op is a step of other functions, such as a fused gradient.
pub const fn internal() -> Forms {
    NONE
}
/// A function of `gt`.
pub const fn function() -> Forms {
    Forms { function: true, ..NONE }
}
/// A function of `gt` and a method of tensors.
pub const fn method() -> Forms {
    Forms { function: true, method: true, ..NONE }
}
/// A function of `gt` with `out=`, a method of tensors and an in-place method: the forms of most elementwise ops.
pub const fn elementwise() -> Forms {
    method().in_place().out()
}
/// A method of tensors alone.
pub const fn method_only() -> Forms {
    Forms { method: true, ..NONE }
}
/// A method that writes its result to the tensor, and no other form: `x.uniform_()`.
pub const fn in_place_only() -> Forms {
    Forms { in_place: true, ..NONE }
}
/// A function of a module below `gt`, for instance `nn.functional`.
pub const fn module(module: &'static str) -> Forms {
    Forms { function: true, module, ..NONE }
}

impl Forms {
    /// Whether the function is offered in any form.
    pub const fn is_public(&self) -> bool {
        self.function || self.method || self.in_place
    }
    /// Names the function differently from its declaration.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Forms {
        Forms { name: Some(name), ..self }
    }
    /// Adds other names.
    #[must_use]
    pub const fn aliases(self, aliases: &'static [&'static str]) -> Forms {
        Forms { aliases, ..self }
    }
    /// Adds the in-place method.
    #[must_use]
    pub const fn in_place(self) -> Forms {
        Forms { in_place: true, ..self }
    }
    /// As [`Forms::in_place`], for a method that writes some of the elements.
    #[must_use]
    pub const fn in_place_of_parts(self) -> Forms {
        Forms { in_place: true, of_parts: true, ..self }
    }
    /// Adds the in-place method, as a function too; for a function of a module, the in-place function alone.
    #[must_use]
    pub const fn in_place_function(self) -> Forms {
        Forms { in_place: true, in_place_function: true, ..self }
    }
    /// Adds `out=`.
    #[must_use]
    pub const fn out(self) -> Forms {
        Forms { out: true, ..self }
    }
    /// Adds `out=`, whose dtype must be that of the result.
    #[must_use]
    pub const fn out_same_dtype(self) -> Forms {
        Forms { out: true, out_same_dtype: true, ..self }
    }
    /// Makes the results views of an argument.
    #[must_use]
    pub const fn view(self) -> Forms {
        Forms { view: true, ..self }
    }
    /// As [`Forms::view`], with an error where PyTorch would have to copy.
    #[must_use]
    pub const fn strict_view(self) -> Forms {
        Forms { view: true, strict_view: true, ..self }
    }
    /// A view that is the argument itself where there is nothing to do.
    #[must_use]
    pub const fn or_itself(self) -> Forms {
        Forms { or_itself: true, ..self }
    }
    /// As [`Forms::view`], with a function that copies the views.
    #[must_use]
    pub const fn view_and_copy(self) -> Forms {
        Forms { view: true, view_copy: true, ..self }
    }
    /// Adds the keyword arguments of creation functions.
    #[must_use]
    pub const fn creation(self) -> Forms {
        Forms { creation: true, ..self }
    }
    /// Adds `generator=`.
    #[must_use]
    pub const fn random(self) -> Forms {
        Forms { random: true, ..self }
    }
    /// Names the results.
    #[must_use]
    pub const fn results(self, results: &'static [&'static str]) -> Forms {
        Forms { results, ..self }
    }
    /// Names the parameters whose tensors the function updates in place.
    #[must_use]
    pub const fn updates(self, updates: &'static [&'static str]) -> Forms {
        Forms { updates, ..self }
    }
    /// Computes on half precisions in float32 and rounds the results once, as PyTorch's kernels do. In half precision
    /// the steps of a composite would each round, or overflow.
    #[must_use]
    pub const fn wide(self) -> Forms {
        Forms { wide: true, ..self }
    }
    /// Sets the dtype under automatic mixed precision.
    #[must_use]
    pub const fn autocast(self, autocast: Autocast) -> Forms {
        Forms { autocast, ..self }
    }
}
