//! Queries about the layout of tensors, and about contexts and graphs.

use ggml::prelude::*;

/// A predicate of tensors and its name.
type Question = (&'static str, fn(Tensor<'_>) -> bool);

const QUESTIONS: [Question; 16] = [
    ("view", |t| t.is_view()),
    ("transposed", |t| t.is_transposed()),
    ("permuted", |t| t.is_permuted()),
    ("scalar", |t| t.is_scalar()),
    ("vector", |t| t.is_vector()),
    ("matrix", |t| t.is_matrix()),
    ("3d", |t| t.is_3d()),
    ("contiguous", |t| t.is_contiguous()),
    ("contiguous 1", |t| t.is_contiguous_1()),
    ("contiguous 2", |t| t.is_contiguous_2()),
    ("contiguous to 1", |t| t.is_contiguous_to_1()),
    ("contiguous to 2", |t| t.is_contiguous_to_2()),
    ("contiguous to 3", |t| t.is_contiguous_to_3()),
    ("contiguously allocated", |t| t.is_contiguously_allocated()),
    ("contiguous channels", |t| t.is_contiguous_channels()),
    ("contiguous rows", |t| t.is_contiguous_rows()),
];

/// The names of the predicates that hold.
fn answers(t: Tensor<'_>) -> String {
    let holds: Vec<_> = QUESTIONS.iter().filter(|(_, f)| f(t)).map(|(name, _)| *name).collect();
    holds.join(", ").replace("contiguous", "c").replace("cly allocated", "ca")
}

#[test]
fn layout_predicates_tell_layouts_apart() -> ggml::Result<()> {
    let ctx = Context::new();
    let input = |ne: [i64; 4]| ctx.input("x", DType::F32, ne);
    let all = "c, c 1, c 2, c to 1, c to 2, c to 3, ca, c rows";
    assert_eq!(answers(input([1, 1, 1, 1])?), format!("scalar, vector, matrix, 3d, {all}"));
    assert_eq!(answers(input([3, 1, 1, 1])?), format!("vector, matrix, 3d, {all}"));
    assert_eq!(answers(input([3, 2, 1, 1])?), format!("matrix, 3d, {all}"));
    assert_eq!(answers(input([3, 2, 4, 1])?), format!("3d, {all}"));
    let a = input([3, 2, 4, 5])?;
    assert_eq!(answers(a), all);
    // The first two dimensions swapped: strides 12, 4, 24, 96.
    assert_eq!(answers(ctx.transpose(a)?), "view, transposed, permuted, ca");
    // The last two dimensions swapped: rows and planes are contiguous, volumes are not.
    assert_eq!(answers(ctx.permute(a, [0, 1, 3, 2])?), "view, permuted, c to 1, c to 2, ca, c rows");
    // The third dimension innermost, then the first, then the second: strides 8, 24, 4, 96.
    assert_eq!(
        answers(ctx.permute(ctx.input("y", DType::F32, [2, 3, 4, 5])?, [2, 0, 1, 3])?),
        "view, permuted, ca, c channels"
    );
    let view = |ne: [i64; 4], strides| ctx.view(a, ne, strides, 0);
    // The first row of each plane.
    assert_eq!(answers(view([3, 1, 4, 5], [24, 24, 96])?), "view, c 1, c 2, c to 1, c to 2, c rows");
    // The first two elements of each row.
    assert_eq!(answers(view([2, 2, 4, 5], [12, 24, 96])?), "view, c 1, c 2, c to 1, c rows");
    // Every second plane.
    assert_eq!(answers(view([3, 2, 2, 5], [12, 48, 96])?), "view, c 2, c to 1, c to 2, c rows");
    // The first planes of each volume.
    assert_eq!(answers(view([3, 2, 2, 5], [12, 24, 96])?), "view, c to 1, c to 2, c to 3, c rows");
    Ok(())
}

#[test]
fn shape_predicates_compare_tensors() -> ggml::Result<()> {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [6, 4])?;
    let b = ctx.input("b", DType::F16, [6, 4])?;
    let c = ctx.input("c", DType::F32, [6, 5])?;
    let part = ctx.input("part", DType::F32, [3, 2])?;
    assert!(a.are_same_shape(b) && !a.are_same_shape(c));
    assert!(!a.are_same_stride(b), "other sizes of elements");
    assert!(!a.are_same_stride(c), "other sizes of planes");
    assert!(a.are_same_stride(ctx.view(c, [2, 2], [24, 96, 96], 0)?));
    assert!(part.can_repeat(a) && !a.can_repeat(part) && !part.can_repeat(c));
    Ok(())
}

#[test]
fn tensor_sizes_are_counted() -> ggml::Result<()> {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F16, [3, 5, 7])?;
    assert_eq!((a.n_dims(), a.nrows(), a.element_size(), a.elements()), (3, 35, 2, 105));
    assert_eq!((a.nbytes(), a.nbytes_pad()), (210, 224));
    let q = ctx.input("q", DType::Q8_0, [64, 1, 1, 2])?;
    assert_eq!((q.n_dims(), q.nrows(), q.element_size(), q.nbytes()), (4, 2, 34, 136));
    assert_eq!(ctx.input("one", DType::F32, [1])?.n_dims(), 1);

    let mut i = 0;
    for i2 in 0..7 {
        for i1 in 0..5 {
            for i0 in 0..3 {
                assert_eq!(a.unravel_index(i), Some([i0, i1, i2, 0]));
                i += 1;
            }
        }
    }
    assert_eq!((a.unravel_index(105), a.unravel_index(1 << 31), a.unravel_index(usize::MAX)), (None, None, None));
    Ok(())
}

#[test]
fn op_names_describe_the_operation() -> ggml::Result<()> {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4])?;
    let names = |t: Tensor<'_>| [t.op(), t.op_name(), t.op_symbol()];
    assert_eq!(names(a), ["NONE", "NONE", "none"]);
    assert_eq!(names(ctx.relu(a)?), ["RELU", "UNARY", "unary(x)"]);
    assert_eq!(names(ctx.add(a, a)?), ["ADD", "ADD", "x+y"]);
    Ok(())
}

#[test]
fn input_like_copies_type_and_shape() -> ggml::Result<()> {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F16, [4, 3])?;
    let b = ctx.input_like("b", ctx.transpose(a)?)?;
    assert_eq!((b.name().as_str(), b.dtype(), b.ne()), ("b", DType::F16, [3, 4, 1, 1]));
    assert!(b.is_contiguous() && !b.is_view());
    Ok(())
}

#[test]
fn context_reports_its_memory() -> ggml::Result<()> {
    let mut ctx = Context::new();
    assert_eq!((ctx.used_mem(), ctx.mem_size()), (0, 0));
    ctx.input("a", DType::F32, [1 << 20])?;
    let one = ctx.used_mem();
    assert!(one > 0 && one < 1024, "{one} bytes: headers, no data");
    ctx.input("b", DType::F32, [1])?;
    assert_eq!(ctx.used_mem(), 2 * one);
    let size = ctx.mem_size();
    while ctx.mem_size() == size {
        ctx.input("c", DType::F32, [1])?;
    }
    assert!(ctx.used_mem() <= ctx.mem_size());
    ctx.reset();
    assert_eq!(ctx.used_mem(), 0);
    assert!(ctx.mem_size() > size, "memory is kept");
    Ok(())
}

#[test]
fn weights_iterate_in_insertion_order() -> ggml::Result<()> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("z", DType::F32, [1])?;
    builder.tensor("a", DType::F32, [2])?;
    let weights = builder.place(Device::cpu()?.buffer_type())?;
    assert_eq!(weights.iter().map(Tensor::name).collect::<Vec<_>>(), ["z", "a"]);
    Ok(())
}

#[test]
fn version_is_the_pinned_one() {
    assert_eq!(ggml::version(), ggml::sys::VERSION);
    assert!(!ggml::commit().is_empty());
}

#[test]
fn from_ftype_knows_every_file_type() {
    let known: Vec<_> = (-2..64).filter_map(|n| DType::from_ftype(n).map(|t| (n, t.name()))).collect();
    assert_eq!(known.first(), Some(&(0, "f32")));
    assert!(known.contains(&(1, "f16")) && known.contains(&(2, "q4_0")) && known.contains(&(14, "q6_K")), "{known:?}");
    assert!(known.len() >= 26, "those of ggml 0.26: {known:?}");
    for n in [-1, 4, 1024, i32::MIN, i32::MAX] {
        assert_eq!(DType::from_ftype(n), None, "{n}");
    }
}

#[test]
fn status_error_names_the_status() {
    let error = Error::Status { call: "ggml_x", status: -2, log: "".into() };
    assert_eq!(error.to_string(), "ggml_x returned status -2, GGML status: error (failed to allocate memory)");
    let error = Error::Status { call: "ggml_x", status: 77, log: "".into() };
    assert_eq!(error.to_string(), "ggml_x returned status 77, GGML status: unknown");
}

#[test]
fn set_names_the_type_of_indices_before_their_values() {
    let ctx = Context::new();
    let (a, rows) = (ctx.input("a", DType::F32, [4, 3]).unwrap(), ctx.input("rows", DType::I32, [2]).unwrap());
    let graph = ctx.graph([ctx.get_rows(a, rows).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    for result in [run.set(rows, &[1.0_f32, 0.0]), run.set_at(rows, 0, &[1.0_f32])] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::ElementType { .. }), "{error:?}");
    }
    assert!(matches!(run.set(rows, &[1_i32]), Err(Error::Length { .. })));
    assert!(matches!(run.set(rows, &[1_i32, 3]), Err(Error::Index { value: 3, .. })));
}
