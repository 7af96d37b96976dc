//! From arrays to inputs, through a graph, to an array.

use std::cell::RefCell;

use ggml::prelude::*;

use super::array::Array;

pub(crate) const F32: DType = DType::F32;
pub(crate) const F16: DType = DType::F16;
pub(crate) const BF16: DType = DType::BF16;
pub(crate) const I32: DType = DType::I32;

/// How the elements of an operand lie in memory: dimensions in the order `order`, each with `pad` unused elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) order: [usize; 4],
    pub(crate) pad: [usize; 4],
}

impl Layout {
    pub(crate) const PACKED: Self = Self { order: [0, 1, 2, 3], pad: [0; 4] };
    pub(crate) const PADDED: Self = Self { order: [0, 1, 2, 3], pad: [3, 1, 2, 1] };
    pub(crate) const TRANSPOSED: Self = Self { order: [1, 0, 2, 3], pad: [0; 4] };
    pub(crate) const SWAPPED: Self = Self { order: [0, 2, 1, 3], pad: [0; 4] };
    pub(crate) const MIXED: Self = Self { order: [2, 0, 3, 1], pad: [1, 0, 2, 1] };

    /// With the elements of a row side by side.
    pub(crate) const ROWS: [Self; 4] =
        [Self::PACKED, Self::PADDED, Self::SWAPPED, Self { order: [0, 3, 1, 2], pad: [2, 0, 1, 1] }];
    pub(crate) const ANY: [Self; 5] = [Self::PACKED, Self::PADDED, Self::TRANSPOSED, Self::SWAPPED, Self::MIXED];
}

/// A scheduler over one CPU backend with several threads.
pub(crate) fn cpu() -> Sched {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(2).unwrap();
    Sched::builder().backend(backend).build().unwrap()
}

thread_local! {
    static SCHED: RefCell<Sched> = RefCell::new(cpu());
}

/// A computation and the values of its inputs.
pub(crate) struct Program<'c> {
    pub(crate) ctx: &'c Context,
    inputs: RefCell<Vec<(Tensor<'c>, Vec<u8>)>>,
}

impl<'c> Program<'c> {
    pub(crate) fn new(ctx: &'c Context) -> Self {
        Self { ctx, inputs: RefCell::default() }
    }

    /// An input with these values.
    pub(crate) fn input(&self, a: &Array, dtype: DType) -> Tensor<'c> {
        let t = self.ctx.input("", dtype, a.shape()).unwrap();
        self.inputs.borrow_mut().push((t, a.bytes(dtype)));
        t
    }

    /// A view with these values and this layout.
    pub(crate) fn laid_out(&self, a: &Array, dtype: DType, layout: Layout) -> Tensor<'c> {
        if layout == Layout::PACKED {
            return self.input(a, dtype);
        }
        let Layout { order, pad } = layout;
        let stored = order.map(|axis| a.ne[axis]);
        let whole = [0, 1, 2, 3].map(|i| stored[i] + pad[i]);
        // Padding on both sides; what is there must not come out.
        let first = pad.map(|n| n / 2);
        let memory = Array::from_fn(whole, |i| {
            let mut at = [0; 4];
            for j in 0..4 {
                if i[j] < first[j] || i[j] - first[j] >= stored[j] {
                    return 99.0;
                }
                at[order[j]] = i[j] - first[j];
            }
            a.at(at)
        });
        let root = self.input(&memory, dtype);
        let [nb0, nb1, nb2, nb3] = root.nb();
        let offset = first[0] / dtype.block_size() as usize * nb0 + first[1] * nb1 + first[2] * nb2 + first[3] * nb3;
        let view = self.ctx.view(root, stored.map(|n| n as i64), [nb1, nb2, nb3], offset).unwrap();
        let t = self.ctx.permute(view, order).unwrap();
        assert_eq!(t.ne(), a.ne.map(|n| n as i64));
        t
    }

    /// The value of `y`, computed by the thread's own scheduler.
    pub(crate) fn run(&self, y: Tensor<'c>) -> Array {
        SCHED.with_borrow_mut(|sched| self.run_on(sched, y)).unwrap()
    }

    pub(crate) fn run_on(&self, sched: &mut Sched, y: Tensor<'c>) -> ggml::Result<Array> {
        let graph = self.ctx.graph([y])?;
        let mut run = sched.alloc(&graph)?;
        for (t, bytes) in self.inputs.borrow().iter() {
            match run.set_bytes(*t, bytes) {
                Ok(()) | Err(Error::NotPart { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        run.compute()?;
        let ne = y.ne().map(|n| n as usize);
        Ok(match y.dtype() {
            F32 => of(ne, run.get::<f32>(y)?),
            F16 => of(ne, run.get::<half::f16>(y)?),
            BF16 => of(ne, run.get::<half::bf16>(y)?),
            I32 => of(ne, run.get::<i32>(y)?),
            other => Array::from_bytes(ne, other, &run.get_bytes(y)?),
        })
    }
}

fn of<T: Into<f64>>(ne: [usize; 4], data: Vec<T>) -> Array {
    Array { ne, data: data.into_iter().map(Into::into).collect() }
}

/// What one rounding to `dtype` may change, relative to the value.
pub(crate) fn rounding(dtype: DType) -> f64 {
    match dtype {
        F32 => 2e-6,
        F16 => 1e-3,
        BF16 => 8e-3,
        _ => 0.0,
    }
}
