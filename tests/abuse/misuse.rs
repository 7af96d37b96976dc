//! What is done with an allocation beside computing it: all that is wrong, or of no use.

use std::ops::ControlFlow;

use ggml::prelude::*;
use ggml_draw::ToDot as _;

use crate::bench::Bench;
use crate::stats::{Stats, may_fail, must_fail, variant};

/// One thing that is wrong, or of no use.
pub(crate) fn misuse(
    stats: &mut Stats,
    rng: &mut fastrand::Rng,
    bench: &Bench<'_>,
    run: &mut Run<'_, '_>,
    outputs: &[Tensor<'_>],
) {
    let known = &bench.known[rng.usize(..bench.known.len())];
    let t = known.t;
    let node = outputs[rng.usize(..outputs.len())];
    match rng.u32(..16) {
        0 => must_fail(stats, "setting a result", run.set_bytes(node, &[0; 64])),
        1 => {
            let n = rng.usize(..300);
            if n != t.nbytes() {
                must_fail(stats, "setting too few or too many bytes", run.set_bytes(t, &vec![0; n]));
            }
        }
        2 if t.dtype() != DType::F64 => must_fail(stats, "another type", run.set::<f64>(t, &vec![0.0; t.elements()])),
        3 if t.dtype() != DType::I8 => must_fail(stats, "another type", run.get::<i8>(t)),
        4 => may_fail(stats, run.get::<f32>(t)),
        5 => may_fail(stats, run.get_bytes(t)),
        6 => {
            let mut out = vec![0.0_f32; t.elements() + 1];
            must_fail(stats, "a longer slice", run.get_into(t, &mut out));
        }
        7 => {
            let offset = [usize::MAX, usize::MAX / 4, usize::MAX - 3, t.elements()][rng.usize(..4)];
            must_fail(stats, "a part outside", run.set_at::<f32>(t, offset, &[1.0]));
        }
        8 => {
            assert!(run.n_splits() > 0, "no splits");
            assert!(run.splits().unwrap().iter().map(|s| s.nodes.len()).sum::<usize>() > 0, "no nodes");
            assert!(run.buffer_sizes().is_ok(), "no sizes");
            drop(run.backend_of(t).map(Backend::name));
        }
        9 => {
            // Building goes on meanwhile.
            let ctx = Context::new();
            let view = ctx.view(t, [1], [0; 3], 0);
            may_fail(stats, view.and_then(|v| ctx.cont(v)).and_then(|y| run.get_bytes(y)));
        }
        10 => {
            let ctx = Context::new();
            let x = ctx.input("stranger", DType::F32, [1]).unwrap();
            must_fail(stats, "setting a stranger", run.set(x, &[1.0_f32]));
            must_fail(stats, "reading a stranger", run.get::<f32>(x));
        }
        11 => may_fail(stats, t.read::<f32>()),
        13 => drop(run.to_dot().unwrap()),
        14 => questions(t, bench.known[rng.usize(..bench.known.len())].t),
        12 => may_fail(stats, t.named("renamed")),
        _ => {
            let mut out = vec![0_u16; rng.usize(..50)];
            let out: &mut [half::f16] = bytemuck::cast_slice_mut(&mut out);
            may_fail(stats, run.get_into(t, out));
        }
    }
}

/// Computes under observation, and perhaps not to the end.
pub(crate) fn observed(stats: &mut Stats, rng: &mut fastrand::Rng, run: &mut Run<'_, '_>) {
    let (mut ask, mut see) = (rng.fork(), rng.fork());
    let result = run.compute_with(
        |t| {
            assert!(!t.op().is_empty(), "a node without an operation");
            ask.bool()
        },
        |seen| {
            let t = seen.tensor();
            if let Err(e) = seen.get::<f32>() {
                assert_eq!(variant(&e), "ElementType", "reading {t:?}");
            }
            if see.u32(..4) == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    may_fail(stats, result);
}

/// What ggml says about a tensor, beside what must be so.
fn questions(t: Tensor<'_>, other: Tensor<'_>) {
    let [n0, n1, n2, n3] = t.ne();
    assert_eq!(t.is_scalar(), t.elements() == 1, "{t:?}");
    assert_eq!(t.is_vector(), n1 * n2 * n3 == 1, "{t:?}");
    assert_eq!(t.is_matrix(), n2 * n3 == 1, "{t:?}");
    assert_eq!(t.is_3d(), n3 == 1, "{t:?}");
    assert_eq!(t.nrows() as i64, n1 * n2 * n3, "{t:?}");
    assert_eq!(t.are_same_shape(other), t.ne() == other.ne(), "{t:?} {other:?}");
    assert_eq!(t.can_repeat(other), t.ne().iter().zip(other.ne()).all(|(n, of)| of % n == 0), "{t:?} {other:?}");
    assert_eq!(t.unravel_index(t.elements()), None, "{t:?}");
    assert_eq!(t.unravel_index(t.elements() - 1), Some([n0 - 1, n1 - 1, n2 - 1, n3 - 1]), "{t:?}");
    assert_eq!(t.unravel_index(usize::MAX), None, "{t:?}");
    let all = [
        t.is_view(),
        t.is_transposed(),
        t.is_permuted(),
        t.is_contiguous_1(),
        t.is_contiguous_2(),
        t.is_contiguous_to_1(),
        t.is_contiguous_to_2(),
        t.is_contiguous_to_3(),
        t.is_contiguously_allocated(),
        t.is_contiguous_channels(),
        t.is_contiguous_rows(),
        t.are_same_stride(other),
    ];
    drop((all, t.n_dims(), t.element_size(), t.nbytes_pad(), t.op_name(), t.op_symbol(), t.shape()));
}

/// Conversions of numbers into block types and back, of any length.
pub(crate) fn convert(stats: &mut Stats, rng: &mut fastrand::Rng) {
    let dtype = DType::ALL[rng.usize(..DType::ALL.len())];
    let mut bytes = vec![0; dtype.type_size() * rng.usize(..3) + usize::from(rng.u32(..8) == 0)];
    rng.fill(&mut bytes);
    may_fail(stats, dtype.dequantize(&bytes));
    may_fail(stats, dtype.validate_row_data(&bytes));
    // Codebooks take seconds to make.
    if dtype.requires_imatrix()
        || dtype.to_string().starts_with("iq") && dtype != DType::IQ4_NL && dtype != DType::IQ4_XS
    {
        return;
    }
    let row = match rng.u32(..8) {
        0 => [0, 1, 7, usize::MAX, 1 << 63, 1 << 31][rng.usize(..6)],
        _ => dtype.block_size() as usize * rng.usize(1..3),
    };
    let n = row.min(1024) * rng.usize(..3) + usize::from(rng.u32(..8) == 0);
    let number = |rng: &mut fastrand::Rng| match rng.u32(..200) {
        0 => f32::from_bits(rng.u32(..)),
        1 => [0.0, -0.0, f32::MIN_POSITIVE, 1e-40, 65000.0, -65503.0, f32::NAN, f32::INFINITY][rng.usize(..8)],
        _ => 4.0 * rng.f32() - 2.0,
    };
    let wide = [1e-30, 1e-3, 1.0, 1.0, 1e4][rng.usize(..5)];
    let data: Vec<_> = (0..n).map(|_| wide * number(rng)).collect();
    let weights: Vec<_> = (0..row.min(4096)).map(|_| number(rng).abs()).collect();
    let result = dtype.quantize(&data, row, rng.bool().then_some(&weights));
    if let Ok(bytes) = &result {
        let back = dtype.dequantize(bytes).unwrap();
        assert_eq!(back.len(), n, "as many numbers as before");
        assert!(!dtype.is_quantized() || back.iter().all(|x| x.is_finite()), "numbers that are none");
    }
    may_fail(stats, result);
}
