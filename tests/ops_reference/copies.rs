//! Views, and copies of all kinds.

use ggml::prelude::*;

use super::array::Array;
use super::run::{BF16, F16, F32, I32, Layout, Program, rounding};

const NE: [usize; 4] = [6, 4, 2, 3];

#[test]
fn views_show_the_same_elements() {
    for dtype in [F32, F16, DType::I8, DType::I64] {
        let a = Array::from_fn(NE, |i| (i[0] + 6 * i[1] + 24 * i[2]) as f64 - 25.0 * i[3] as f64);
        for axes in [[0, 1, 2, 3], [1, 0, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0], [0, 2, 1, 3]] {
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.cont(ctx.permute(p.input(&a, dtype), axes).unwrap()).unwrap();
            assert_eq!(p.run(y), a.permuted(axes), "{dtype} {axes:?}");
        }
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let x = p.input(&a, dtype);
        let y = ctx.cont(ctx.transpose(x).unwrap()).unwrap();
        assert_eq!(p.run(y), a.permuted([1, 0, 2, 3]), "{dtype} transposed");
        let y = ctx.cont(ctx.reshape(x, [8, 18]).unwrap()).unwrap();
        assert_eq!(p.run(y), a.reshaped([8, 18, 1, 1]), "{dtype} reshaped");
        // Every second row from the third element of the first row on.
        let [nb0, nb1, nb2, nb3] = x.nb();
        let y = ctx.cont(ctx.view(x, [3, 2, 2, 3], [2 * nb1, nb2, nb3], 2 * nb0).unwrap()).unwrap();
        let want = Array::from_fn([3, 2, 2, 3], |[i0, i1, i2, i3]| a.at([i0 + 2, 2 * i1, i2, i3]));
        assert_eq!(p.run(y), want, "{dtype} viewed");
    }
}

#[test]
fn a_copy_of_blocks_keeps_them() {
    let a = Array::noise([64, 3, 2, 1], 1.0, 1, F32);
    let want = Array::from_bytes(a.ne, DType::Q8_0, &a.bytes(DType::Q8_0));
    for layout in [Layout::PACKED, Layout { pad: [64, 1, 0, 0], ..Layout::PACKED }, Layout::SWAPPED] {
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let y = ctx.cont(p.laid_out(&want, DType::Q8_0, layout)).unwrap();
        p.run(y).assert_near(&want, 1e-6, &format!("{layout:?}"));
    }
}

#[test]
fn casts_convert() {
    let floats = [F32, F16, BF16];
    for from in floats {
        for to in floats {
            for layout in Layout::ANY {
                let a = Array::noise(NE, 9.0, 3, from);
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let y = ctx.cast(p.laid_out(&a, from, layout), to).unwrap();
                assert_eq!(y.dtype(), to);
                p.run(y).assert_near(&a, rounding(to), &format!("{from} to {to} {layout:?}"));
            }
        }
        for (to, tolerance) in [(DType::Q8_0, 0.01), (DType::Q4_0, 0.2)] {
            let a = Array::noise([64, 3, 2, 1], 1.0, 4, from);
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.cast(p.input(&a, from), to).unwrap();
            p.run(y).assert_near(&a, tolerance, &format!("{from} to {to}"));
        }
    }
    for from in [DType::Q8_0, DType::Q4_0] {
        let a = Array::noise([64, 3, 2, 1], 1.0, 5, F32);
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let y = ctx.cast(p.input(&a, from), F32).unwrap();
        p.run(y).assert_near(&Array::from_bytes(a.ne, from, &a.bytes(from)), 1e-6, &format!("{from} to f32"));
    }
    let a = Array::from_fn(NE, |i| i[0] as f64 - 3.0 * i[1] as f64);
    let ctx = Context::new();
    let p = Program::new(&ctx);
    let y = ctx.cast(p.laid_out(&a, I32, Layout::MIXED), F32).unwrap();
    assert_eq!(p.run(y), a, "i32 to f32");
}

#[test]
fn a_copy_changes_the_state_it_goes_into() {
    let a = Array::noise([6, 4, 1, 1], 1.0, 6, F32);
    for (to, tolerance) in [(F32, 0.0), (F16, rounding(F16)), (BF16, rounding(BF16))] {
        let mut builder = WeightsBuilder::new();
        builder.tensor("s", to, [10, 8]).unwrap();
        let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
        state.set_bytes("s", &Array::from_fn([10, 8, 1, 1], |_| 5.0).bytes(to)).unwrap();
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let s = state.get("s").unwrap();
        let [nb0, nb1, ..] = s.nb();
        let part = ctx.view(s, [6, 4], [2 * nb1, 8 * nb1, 8 * nb1], nb1 + 3 * nb0).unwrap();
        let y = ctx.cpy(p.laid_out(&a, F32, Layout::TRANSPOSED), part).unwrap();
        p.run(y).assert_near(&a, tolerance, &format!("the copy in {to}"));
        let whole = Array::from_bytes([10, 8, 1, 1], to, &state.read_bytes("s").unwrap());
        let want = Array::from_fn([10, 8, 1, 1], |[i, j, ..]| {
            if (3..9).contains(&i) && j % 2 == 1 { a.at([i - 3, j / 2, 0, 0]) } else { 5.0 }
        });
        whole.assert_near(&want, tolerance, &format!("the state in {to}"));
    }
}

#[test]
fn a_copy_into_another_shape_keeps_the_order() {
    let a = Array::noise([6, 4, 1, 1], 1.0, 7, F32);
    for layout in [Layout::PACKED, Layout::PADDED, Layout::TRANSPOSED] {
        for turned in [false, true] {
            let mut builder = WeightsBuilder::new();
            builder.tensor("s", F32, [8, 3]).unwrap();
            let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let s = state.get("s").unwrap();
            let into = if turned { ctx.transpose(s).unwrap() } else { s };
            let y = ctx.cpy(p.laid_out(&a, F32, layout), into).unwrap();
            let want = a.reshaped(if turned { [3, 8, 1, 1] } else { [8, 3, 1, 1] });
            assert_eq!(p.run(y), want, "{layout:?} {turned}");
        }
    }
}

#[test]
fn repetitions_and_their_sums() {
    for dtype in [F32, F16, BF16, I32, DType::I16] {
        for layout in Layout::ROWS {
            let a = Array::from_fn([3, 2, 1, 2], |i| (1 + i[0] + 4 * i[1] + 9 * i[3]) as f64);
            let like = Array::from_fn([6, 2, 3, 4], |_| 0.0);
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.repeat(p.laid_out(&a, dtype, layout), p.input(&like, F16)).unwrap();
            assert_eq!(p.run(y), Array::from_fn(like.ne, |i| a.wrapped(i)), "{dtype} {layout:?}");
        }
    }
    for layout in Layout::ROWS {
        let a = Array::noise([6, 2, 3, 4], 1.0, 8, F32);
        let like = Array::from_fn([3, 2, 1, 2], |_| 0.0);
        let ctx = Context::new();
        let p = Program::new(&ctx);
        let y = ctx.repeat_back(p.laid_out(&a, F32, layout), p.input(&like, F32)).unwrap();
        let mut want = like.clone();
        Array::from_fn(a.ne, |i| {
            let at = [i[0] % 3, i[1], 0, i[3] % 2];
            want.data[at[0] + 3 * (at[1] + 2 * at[3])] += a.at(i);
            0.0
        });
        p.run(y).assert_near(&want, 1e-6, &format!("sums {layout:?}"));
    }
}

#[test]
fn concatenations_in_each_dimension() {
    for dtype in [F32, F16, BF16, I32, DType::I16, DType::I8, DType::I64] {
        for dim in 0..4 {
            for layout in Layout::ANY {
                // What has no kernel of its own is copied row by row.
                if dtype == DType::I64 && !Layout::ROWS.contains(&layout) {
                    continue;
                }
                let a = Array::from_fn([3, 2, 2, 2], |i| (i[0] + 4 * i[1] + 9 * i[2] + 20 * i[3]) as f64);
                let mut nb = a.ne;
                nb[dim] = 3;
                let b = Array::from_fn(nb, |i| 50.0 + (i[0] + 4 * i[1] + 9 * i[2] + 20 * i[3]) as f64);
                let ctx = Context::new();
                let p = Program::new(&ctx);
                let y = ctx.concat(p.laid_out(&a, dtype, layout), p.laid_out(&b, dtype, layout), dim).unwrap();
                let mut ne = a.ne;
                ne[dim] += 3;
                let want = Array::from_fn(ne, |mut i| {
                    if i[dim] < a.ne[dim] {
                        return a.at(i);
                    }
                    i[dim] -= a.ne[dim];
                    b.at(i)
                });
                assert_eq!(p.run(y), want, "{dtype} {dim} {layout:?}");
            }
        }
    }
}
