//! Every declaration is one that Python, C, stubs and docs can be made of.

use gt_functions::declaration::{Kind, Returns};
use std::collections::{HashMap, HashSet};

#[test]
fn every_function_says_in_its_first_sentence_what_it_computes() {
    for function in gt_functions::all() {
        let first = function.summary();
        assert!(first.split(' ').count() >= 3, "{}: {first:?}", function.name());
        assert!(first.ends_with(['.', ':']), "{}: {first:?}", function.name());
    }
}

#[test]
fn parameters_have_names_of_their_own_and_those_with_defaults_come_last() {
    for function in gt_functions::all() {
        let parameters = function.parameters();
        let mut names = HashSet::new();
        let mut optional = false;
        for parameter in &parameters {
            assert!(names.insert(parameter.name), "{}: {} twice", function.name(), parameter.name);
            if !parameter.keyword_only {
                assert!(!optional || parameter.default.is_some(), "{}: {}", function.name(), parameter.name);
                optional |= parameter.default.is_some();
            }
        }
        let positional = parameters.iter().filter(|parameter| !parameter.keyword_only).count();
        for (i, parameter) in parameters.iter().enumerate() {
            let open = matches!(parameter.kind, Kind::Sizes | Kind::Operands);
            assert!(!open || i + 1 == positional, "{}: {} is not last", function.name(), parameter.name);
        }
    }
}

#[test]
fn every_function_has_a_form_and_methods_begin_with_a_tensor() {
    for function in gt_functions::all() {
        let (name, forms) = (function.name(), &function.forms);
        assert!(forms.function || forms.method || forms.in_place || forms.in_place_function, "{name} has no form");
        let first = function.parameters().into_iter().next().map(|parameter| parameter.kind);
        if forms.method || forms.in_place || forms.view {
            let takes_several = forms.view && matches!(first, Some(Kind::Tensors | Kind::Operands));
            let takes_one = matches!(first, Some(Kind::Tensor | Kind::TensorOrNumber));
            assert!(takes_one || takes_several, "{name} begins with {first:?}");
        }
        let named = forms.results.len();
        let fits = matches!(function.returns, Returns::Tuple(count) if count == named)
            || function.returns == Returns::TensorAndTuple;
        assert!(named == 0 || fits, "{name}: {:?}", function.returns);
    }
}

#[test]
fn full_names_are_unique_and_found() {
    let mut names = HashMap::new();
    for function in gt_functions::all() {
        let name = gt_functions::full_name(function);
        assert!(gt_functions::by_full_name(&name).is_some());
        if let Some(other) = names.insert(name.clone(), function.forms.module) {
            assert_ne!(other, function.forms.module, "{name} is declared twice");
        }
    }
    assert!(gt_functions::by_full_name("no such function").is_none());
}

#[test]
fn overloads_share_a_module_and_one_of_them_is_documented() {
    let mut docs: HashMap<(&str, &str), usize> = HashMap::new();
    for function in gt_functions::all() {
        let longest = docs.entry((function.forms.module, function.name())).or_default();
        *longest = (*longest).max(function.doc.len());
    }
    assert!(docs.values().all(|length| *length > 20));
}
