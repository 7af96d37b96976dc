//! Graphs of one topology whose sizes differ: C decides by sizes whether its plan has room for the next one, and the
//! results are those of a plan of its own.

#![cfg(test)]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};

/// Both ways to get memory for a graph, with the same plan for all graphs of a test.
struct Both {
    sched: Sched,
    allocator: GraphAllocator,
    backend: Backend,
}

impl Both {
    fn new() -> Result<Self> {
        let backend = Backend::cpu()?;
        Ok(Self {
            sched: Sched::builder().backend(Backend::cpu()?).build()?,
            allocator: GraphAllocator::new(backend.device().buffer_type()),
            backend,
        })
    }

    /// Computes `outputs` from `inputs` in both ways, which must agree.
    fn run(&mut self, ctx: &Context, inputs: &[(Tensor<'_>, &[f32])], outputs: &[Tensor<'_>]) -> Result<Vec<Vec<f32>>> {
        let graph = ctx.graph(outputs)?;
        let mut run = self.sched.alloc(&graph)?;
        inputs.iter().try_for_each(|(t, data)| run.set(*t, data))?;
        run.compute()?;
        let results: Result<Vec<_>> = outputs.iter().map(|&t| run.get(t)).collect();
        drop(run);
        let mut run = self.allocator.alloc(&graph, &mut self.backend)?;
        inputs.iter().try_for_each(|(t, data)| run.set(*t, data))?;
        run.compute()?;
        let results = results?;
        for (&t, result) in outputs.iter().zip(&results) {
            assert_eq!(&run.get::<f32>(t)?, result, "{t:?} on one device");
        }
        Ok(results)
    }
}

fn numbers(n: i64) -> Vec<f32> {
    (0..n).map(|i| i as f32 - 3.0).collect()
}

/// A sum computed in the memory of its second operand would overwrite it, once that operand is repeated.
#[test]
fn add_of_a_repeated_operand_is_not_computed_in_its_memory() -> Result<()> {
    let mut both = Both::new()?;
    for rows in [3, 1, 3, 1] {
        let ctx = Context::new();
        let (a, b) = (ctx.input("a", DType::F32, [4, 3])?, ctx.input("b", DType::F32, [4, rows])?);
        let negated = ctx.neg(b)?;
        let sum = ctx.add(a, negated)?;
        let (all, some) = (numbers(12), numbers(4 * rows));
        let results = both.run(&ctx, &[(a, &all), (b, &some)], &[sum])?;
        let expected: Vec<_> = all.iter().zip(some.iter().cycle()).map(|(a, b)| a - b).collect();
        assert_eq!(results, [expected], "with {rows} rows");
    }
    Ok(())
}

/// C compares the sizes of operations and of their operands only.
#[test]
fn plan_keeps_unused_inputs_apart_when_they_grow() -> Result<()> {
    let mut both = Both::new()?;
    for n in [4, 4096, 8] {
        let ctx = Context::new();
        let (unused, used) = (ctx.input("unused", DType::F32, [n])?, ctx.input("used", DType::F32, [4])?);
        let squares = ctx.sqr(used)?;
        let (ones, few) = (vec![1.0; n as usize], numbers(4));
        let results = both.run(&ctx, &[(unused, &ones), (used, &few)], &[unused, used, squares])?;
        assert_eq!(results, [ones, few, vec![9.0, 4.0, 1.0, 0.0]], "with {n} elements");
    }
    Ok(())
}

/// A chain with branches, views, copies and operations in place, for growing, shrinking and alternating sizes.
#[test]
fn allocator_computes_chains_of_all_sizes() -> Result<()> {
    let mut both = Both::new()?;
    for n in (1..40).chain((1..40).rev()).chain([2, 30, 2, 30, 2, 30]) {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4, n])?;
        let double = ctx.scale(x, 2.0)?;
        let sum = ctx.add(ctx.relu(double)?, x)?;
        let flat = ctx.reshape(sum, [4 * n])?;
        let transposed = ctx.cont(ctx.transpose(ctx.neg(sum)?)?)?;
        let back = ctx.cont(ctx.transpose(transposed)?)?;
        let zero = ctx.add(ctx.reshape(back, [4 * n])?, flat)?;
        let values = numbers(4 * n);
        let results = both.run(&ctx, &[(x, &values)], &[flat, zero])?;
        let expected: Vec<_> = values.iter().map(|v| (2.0 * v).max(0.0) + v).collect();
        assert_eq!(results, [expected, vec![0.0; values.len()]], "{n} rows");
    }
    Ok(())
}

/// Different operations, and a different order of operands, are another topology.
#[test]
fn allocator_plans_anew_for_another_topology() -> Result<()> {
    let mut both = Both::new()?;
    for i in 0..6 {
        let ctx = Context::new();
        let n = 4 + i64::from(i);
        let (a, b) = (ctx.input("a", DType::F32, [n])?, ctx.input("b", DType::F32, [n])?);
        let difference = match i % 3 {
            0 => ctx.sub(ctx.sqr(a)?, b)?,
            1 => ctx.sub(ctx.neg(b)?, a)?,
            _ => ctx.mul(ctx.sqr(a)?, ctx.neg(b)?)?,
        };
        let (x, y) = (numbers(n), vec![2.0; n as usize]);
        let results = both.run(&ctx, &[(a, &x), (b, &y)], &[difference])?;
        let expected = x.iter().map(|x| match i % 3 {
            0 => x * x - 2.0,
            1 => -2.0 - x,
            _ => x * x * -2.0,
        });
        assert_eq!(results, [expected.collect::<Vec<_>>()], "graph {i}");
    }
    Ok(())
}
