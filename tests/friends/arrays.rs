//! Arrays as inputs and results: any layout, shapes reversed.

use ggml::ndarray::{Array, Array0, Array1, Array2, ArrayD, Axis, array, s};
use ggml::{arrays, ndarray, prelude::*};

/// 0, 1, 2, …
fn count(n: u8) -> Array1<f32> {
    (0..n).map(f32::from).collect()
}

/// A matrix product by `ndarray`'s own code, from views of any layout.
#[test]
fn arrays_of_any_layout_are_inputs() {
    let a = count(12).into_shape_with_order((3, 4)).unwrap();
    let b = (count(20) * 0.5 - 3.0).into_shape_with_order((5, 4)).unwrap();
    let layouts = [a.view(), a.slice(s![..;-1, ..]), a.slice(s![.., ..;2]), a.slice(s![1.., 1..3])];
    let columns_first = a.t().as_standard_layout().into_owned();
    for a in layouts.into_iter().chain([columns_first.t()]) {
        let b = b.slice(s![.., ..a.ncols()]);
        let ctx = Context::new();
        let (x, y) = (
            ctx.input("a", DType::F32, arrays::shape(&a)).unwrap(),
            ctx.input("b", DType::F32, arrays::shape(&b)).unwrap(),
        );
        let product = ctx.mul_mat(x, y).unwrap();
        let graph = ctx.graph([product]).unwrap();
        let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
        let run = sched.run(&graph, ((x, &a), (y, &b))).unwrap();
        let found: Array2<f32> = run.get_array(product).unwrap();
        assert_eq!(found, b.dot(&a.t()));
    }
}

#[test]
fn arrays_have_as_many_dimensions_as_asked() {
    let ctx = Context::new();
    let numbers = Array::from_iter(0..120_i32).into_shape_with_order((2, 3, 4, 5)).unwrap();
    let x = ctx.input("x", DType::I32, arrays::shape(&numbers)).unwrap();
    assert_eq!(x.ne(), [5, 4, 3, 2]);
    let flat = ctx.input("flat", DType::F32, [6]).unwrap();
    let one = ctx.input("one", DType::F32, [1]).unwrap();
    let graph = ctx.graph([ctx.cont(x).unwrap(), ctx.neg(flat).unwrap(), ctx.neg(one).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set_array(x, &numbers).unwrap();
    run.set_array(one, &Array0::from_elem((), 7.0_f32)).unwrap();
    run.set_array(flat, &count(6).into_shape_with_order((1, 1, 6)).unwrap()).unwrap();
    assert_eq!(run.get_array::<i32, ndarray::Ix4>(x).unwrap(), numbers);
    assert_eq!(run.get_array::<i32, ndarray::IxDyn>(x).unwrap(), numbers.clone().into_dyn());
    assert_eq!(run.get_array::<i32, ndarray::Ix6>(x).unwrap().shape(), [1, 1, 2, 3, 4, 5]);
    let row: Array1<f32> = run.get_array(flat).unwrap();
    assert_eq!(row, array![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let all: ArrayD<f32> = run.get_array(flat).unwrap();
    assert_eq!(all.shape(), [1, 1, 1, 6]);
    let scalar: Array0<f32> = run.get_array(one).unwrap();
    assert_eq!(scalar, Array0::from_elem((), 7.0));
    let e = run.get_array::<f32, ndarray::Ix0>(flat).unwrap_err().to_string();
    assert!(e.contains("Run::get_array(`flat` f32 [6, 1, 1, 1])") && e.contains("0 dimensions"), "{e}");
}

#[test]
fn arrays_of_other_shapes_and_types_are_refused() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [2, 3]).unwrap();
    let graph = ctx.graph([ctx.neg(x).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    let rows = Array2::<f32>::zeros((3, 2));
    let e = run.set_array(x, &rows.t()).unwrap_err().to_string();
    assert!(e.contains("`x` f32 [2, 3, 1, 1]") && e.contains("[1, 1, 3, 2] (`ne` reversed)"), "{e}");
    assert!(e.contains("not [2, 3]"), "{e}");
    assert!(run.set_array(x, &rows.view().into_shape_with_order((1, 1, 1, 3, 2)).unwrap()).is_err(), "five dimensions");
    assert!(matches!(run.set_array(x, &Array2::<i32>::zeros((3, 2))), Err(Error::ElementType { .. })));
    run.set_array(x, &rows.insert_axis(Axis(0))).unwrap();
    assert!(matches!(run.get_array::<i32, ndarray::Ix2>(x), Err(Error::ElementType { .. })));
    let other = ctx.input("other", DType::F32, [2, 3]).unwrap();
    assert!(matches!(run.set_array(other, &Array2::<f32>::zeros((3, 2))), Err(Error::NotPart { .. })));
}

#[test]
fn arrays_fill_weights_and_come_back() {
    let w = array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let mut builder = WeightsBuilder::new();
    let index = builder.tensor("w", DType::F32, arrays::shape(&w.t())).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap()).unwrap();
    weights.set(index, &arrays::elements::<f32, _>(&w.t()).unwrap()).unwrap();
    assert_eq!(weights.at(index).read::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(weights.at(index).read_array::<f32, ndarray::Ix2>().unwrap(), w.t());
}
