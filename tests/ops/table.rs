//! Every row of the table of operations (`testkit/src/cases`) on the CPU: results in all layouts against plain Rust, and
//! what is refused.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::prelude::*;
use testkit::bench::Bench;
use testkit::cases::case::{Case, Known};
use testkit::cases::draw::Seeded;
use testkit::cases::{Refused, Row, rows};

use crate::support::{Array, Lab, Layout, assert_close, assert_in_place, precision};

/// Draws of each row.
const DRAWS: u64 = 16;

/// Whether strides are refused, by the builder or when its result is allocated.
fn is_refused(lab: &Lab<'_>, case: &Case, laying: &[Layout]) -> bool {
    let verdict = case.build(&lab.bench, laying).and_then(|y| lab.accepted(y));
    matches!(verdict, Err(Error::Shape { .. } | Error::Unsupported { .. }))
}

/// Compares a case in these layouts with plain Rust, to within what `tolerance` makes of the operands.
fn check(row: &Row, case: &Case, layings: &[Vec<Layout>], tolerance: impl Fn(&[Array]) -> f64) {
    let Some(reference) = &case.reference else { return };
    let mut before: Option<(Vec<Array>, Array)> = None;
    for (i, laying) in layings.iter().enumerate() {
        let context = format!("{} of {}, laid {laying:?}", row.name, case.name());
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, 1 + i % 3);
        let (operands, values) = case.make(&lab.bench, laying);
        let y = (case.build)(&ctx, &operands).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(y.dtype(), case.made(), "{context}");
        let got = lab.run_all(&[y]).unwrap_or_else(|e| panic!("{context}: {e}"));
        // Most often all layouts hold the same.
        let want = before.take().filter(|(of, _)| *of == values).map_or_else(|| reference(&values), |(_, want)| want);
        assert_close(&got[0], &want, tolerance(&values), &context);
        before = Some((values, want));
    }
}

#[test]
fn table_equals_plain_rust() {
    let rows = rows();
    // All of them, so that one wrong row doesn't hide another.
    let all = |row: &&Row| {
        catch_unwind(AssertUnwindSafe(|| {
            row.cases.iter().for_each(|case| check(row, case, &case.layings(), |_| case.tolerance()));
        }))
        .is_err()
    };
    let wrong: Vec<_> = rows.iter().filter(all).map(|row| row.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let compared = rows.iter().filter(|row| row.cases.iter().any(|case| case.reference.is_some())).count();
    assert!(compared > 70, "few have a reference: {compared}");
}

/// Cases with random shapes and parameters, most of which can be built.
#[test]
fn drawn_cases_equal_plain_rust() {
    let rows = rows();
    let all = |row: &&Row| catch_unwind(AssertUnwindSafe(|| check_drawn(row))).is_err();
    let wrong: Vec<_> = rows.iter().filter(all).map(|row| row.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn check_drawn(row: &Row) {
    let Some(drawn) = &row.drawn else { return };
    let cases: Vec<_> = (0..DRAWS).map(|seed| drawn(&mut Seeded::new(seed))).collect();
    let built = |case: &&Case| {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        case.build(&lab.bench, &case.layings()[0]).and_then(|y| lab.accepted(y)).is_ok()
    };
    let built: Vec<_> = cases.iter().filter(built).collect();
    assert!(built.len() as u64 > DRAWS / 2, "{}: {} of {DRAWS} are built", row.name, built.len());
    let compared = Cell::new(0);
    for (i, case) in built.into_iter().enumerate() {
        let layings = case.layings();
        check(row, case, &[layings[i % layings.len()].clone()], |values| {
            let known: Vec<_> = values.iter().map(|x| Known { values: x.clone(), error: 0.0 }).collect();
            let error = case.expected(&known).map_or(f64::INFINITY, |(_, error)| error);
            compared.set(compared.get() + u64::from(error.is_finite()));
            error + precision(case.made())
        });
    }
    let compares = cases.iter().any(|case| case.reference.is_some());
    assert!(!compares || compared.get() > DRAWS / 4, "{}: {} of {DRAWS} are compared", row.name, compared.get());
}

/// What builders in place write, of cases whose first operand is of `f32`.
#[test]
fn cases_in_place_equal_plain_rust() {
    let mut n = 0;
    for row in rows() {
        for case in row.cases.iter().filter(|case| case.operands.first().is_some_and(|o| o.dtype == DType::F32)) {
            let (Some(build), Some(reference)) = (&case.in_place, &case.reference) else { continue };
            let (ctx, laying) = (Context::new(), &case.layings()[0]);
            let values = case.make(&Bench::new(&ctx, 1.0), laying).1;
            let context = format!("{} of {} in place", row.name, case.name());
            assert_in_place(&context, &values[0], &reference(&values), case.tolerance(), |lab, a| {
                let mut operands = case.make(&lab.bench, laying).0;
                operands[0] = a;
                build(lab.ctx, &operands)
            });
            n += 1;
        }
    }
    assert!(n > 20, "{n}");
}

/// Kernels that find rows by some strides only take no others: a layout that a row doesn't name is refused.
#[test]
fn h10_table_refuses_other_strides() {
    let mut taken = Vec::new();
    for row in rows() {
        for case in row.cases.iter().filter(|case| case.reference.is_some()) {
            for laying in case.forbidden() {
                let ctx = Context::new();
                if !is_refused(&Lab::new(&ctx), case, &laying) {
                    taken.push(format!("{} of {}: {laying:?}", row.name, case.name()));
                }
            }
        }
    }
    assert!(taken.is_empty(), "{}", taken.join("\n"));
}

/// The calls that each row names, with the error that it names.
#[test]
fn table_is_refused() {
    let mut n = 0;
    for row in rows() {
        for (i, (how, call)) in row.refused.iter().enumerate() {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let got = match how {
                Refused::Unsupported => call(&ctx).and_then(|y| lab.accepted(y)),
                _ => call(&ctx).map(drop),
            };
            let right = matches!(
                (how, &got),
                (Refused::DType, Err(Error::DType { .. }))
                    | (Refused::Shape, Err(Error::Shape { .. }))
                    | (Refused::Param, Err(Error::Param { .. }))
                    | (Refused::Unsupported, Err(Error::Unsupported { .. }))
            );
            assert!(right, "{}, call {i}, should be refused as {how:?}: {got:?}", row.name);
            n += 1;
        }
    }
    assert!(n > 150, "{n}");
}

/// Results are the same whatever the number of threads, also where there is no reference.
#[test]
fn table_is_the_same_on_any_number_of_threads() {
    for row in rows() {
        for case in row.cases.iter().take(3) {
            let compute = |threads: usize| -> Array {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let y = case.build(&lab.bench, &case.layings()[0]).unwrap_or_else(|e| panic!("{}: {e}", row.name));
                lab.run(y).unwrap_or_else(|e| panic!("{}: {e}", row.name))
            };
            let alone = compute(1);
            for threads in [2, 7] {
                assert_close(&compute(threads), &alone, 1e-6, &format!("{} with {threads} threads", row.name));
            }
        }
    }
}
