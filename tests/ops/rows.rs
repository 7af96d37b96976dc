//! Rows picked by index.

use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

fn numbers(shape: [usize; 4], below: usize) -> Array {
    Array::sample(shape, 9, 0.0, below as f64).map(f64::floor)
}

#[test]
fn get_rows_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::Q8_0, DType::Q4_0] {
        for layout in Layout::ROWS {
            for (table, picks) in [(ne([32, 5]), ne([7])), (ne([64, 4, 3, 2]), ne([6, 3, 2])), (ne([32, 1]), ne([1]))] {
                for picks_layout in [Layout::Plain, Layout::Transposed] {
                    let ctx = Context::new();
                    let lab = Lab::new(&ctx);
                    let (a, values) = lab.operand(&Array::sample(table, 4, -9.0, 9.0), dtype, layout);
                    let (rows, which) = lab.operand(&numbers(picks, table[1]), DType::I32, picks_layout);
                    let y = ctx.get_rows(a, rows).unwrap();
                    assert_eq!(y.dtype(), if dtype == DType::I32 { DType::I32 } else { DType::F32 });
                    let shape = [table[0], picks[0], picks[1], picks[2]];
                    let want = Array::of(shape, |[i0, i1, i2, i3]| {
                        values.at([i0, which.at([i1, i2, i3, 0]) as usize, i2, i3])
                    });
                    let context = format!("{dtype} {layout:?} {table:?} {picks_layout:?}");
                    assert_close(&lab.run(y).unwrap(), &want, 1e-6, &context);
                }
            }
        }
    }
}

#[test]
fn get_rows_checks_indices_when_set() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4, 10]).unwrap();
    let few = ctx.input("few", DType::F32, [4, 3]).unwrap();
    let rows = ctx.input("rows", DType::I32, [6]).unwrap();
    // The same indices, through a view, for two tables: the smaller one sets the bound.
    let part = ctx.view(rows, [4], [16, 16, 16], 8).unwrap();
    let y = ctx.get_rows(a, part).unwrap();
    let z = ctx.get_rows(few, ctx.reshape(rows, [6]).unwrap()).unwrap();
    let graph = ctx.graph([y, z]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(a, &[1.0_f32; 40]).unwrap();
    run.set(few, &[2.0_f32; 12]).unwrap();
    refused!(InputNotSet, run.compute());
    for bad in [-1, 3, 9, i32::MIN, i32::MAX] {
        for position in [0, 5] {
            let mut data = [0_i32; 6];
            data[position] = bad;
            refused!(Index, run.set(rows, &data), "{bad} at {position}");
            refused!(Index, run.set_at(rows, position, &[bad]), "{bad} at {position}");
            let bytes: Vec<u8> = data.iter().flat_map(|n| n.to_le_bytes()).collect();
            refused!(Index, run.set_bytes(rows, &bytes), "{bad} at {position}");
        }
    }
    refused!(InputNotSet, run.compute(), "nothing that was refused counts as set");
    // Indices that are not set are 0, which is in range.
    run.set_at(rows, 1, &[2_i32]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(z).unwrap(), [2.0; 24]);
}

#[test]
fn get_rows_checks_indices_without_a_scheduler() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4, 3]).unwrap();
    let rows = ctx.input("rows", DType::I32, [2]).unwrap();
    let graph = ctx.graph([ctx.get_rows(a, rows).unwrap()]).unwrap();
    let mut allocator = ggml::GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut backend = Backend::cpu().unwrap();
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    refused!(Index, memory.set(rows, &[0, 3]));
    refused!(Index, memory.set(rows, &[-1, 0]));
    memory.set(rows, &[2, 0]).unwrap();
}

#[test]
fn get_rows_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::F32, [4, 5, 3, 2]);
    refused!(DType, ctx.get_rows(a, of(DType::F32, [6, 3, 2, 1])));
    refused!(DType, ctx.get_rows(a, of(DType::I64, [6, 3, 2, 1])));
    for shape in [[6, 2, 2, 1], [6, 3, 1, 1], [6, 3, 2, 2], [6, 1, 1, 1]] {
        refused!(Shape, ctx.get_rows(a, of(DType::I32, shape)), "{shape:?}");
    }
    let rows = of(DType::I32, [6, 3, 2, 1]);
    refused!(Shape, ctx.get_rows(ctx.transpose(of(DType::F32, [5, 4, 3, 2])).unwrap(), rows));
    let lab = Lab::new(&ctx);
    let flat = of(DType::I32, [6, 1, 1, 1]);
    for dtype in [DType::I8, DType::I16, DType::I64, DType::F64, DType::Q8_1, DType::Q8_K] {
        let y = ctx.get_rows(of(dtype, [256, 5, 1, 1]), flat).unwrap();
        refused!(Unsupported, lab.accepted(y), "{dtype}");
    }
}

/// Unchecked indices: results of other operations, weights, states.
#[test]
fn get_rows_refuses_indices_that_are_no_input() {
    let place = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("rows", DType::I32, [4]).unwrap();
        builder
    };
    let buffer = Device::cpu().unwrap().buffer_type();
    let (weights, state) = (place().place(buffer).unwrap(), place().place_state(buffer).unwrap());
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [4, 5]).unwrap();
    let rows = ctx.input("rows", DType::I32, [4]).unwrap();
    let scores = ctx.input("scores", DType::F32, [8, 4]).unwrap();
    let of_state = state.tensor("rows").unwrap();
    for unchecked in [
        ctx.dup(rows).unwrap(),
        ctx.argmax(scores).unwrap(),
        ctx.reshape(ctx.argmax(scores).unwrap(), [4]).unwrap(),
        weights.tensor("rows").unwrap(),
        of_state,
        ctx.view(of_state, [4], [16, 16, 16], 0).unwrap(),
        ctx.cpy(rows, of_state).unwrap(),
    ] {
        refused!(Shape, ctx.get_rows(a, unchecked), "{unchecked:?}");
    }
    // An operation must not change an input after its check.
    refused!(Shape, ctx.cpy(rows, ctx.view(rows, [2], [8, 8, 8], 0).unwrap()));
}
