//! Every row of the table of operations (`testkit/src/cases`) on the CPU: results in all layouts against plain Rust, and
//! what is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::prelude::*;
use testkit::cases::case::Case;
use testkit::cases::{Refused, Row, rows};

use crate::support::{Array, Lab, Layout, assert_close};

/// Whether strides are refused, by the builder or when its result is allocated.
fn is_refused(lab: &Lab<'_>, case: &Case, laying: &[Layout]) -> bool {
    let verdict = case.build(&lab.bench, laying).and_then(|y| lab.accepted(y));
    matches!(verdict, Err(Error::Shape { .. } | Error::Unsupported { .. }))
}

fn check(row: &Row, case: &Case) {
    let Some(reference) = &case.reference else { return };
    for (i, laying) in case.layings().iter().enumerate() {
        let context = format!("{} of {}, laid {laying:?}", row.name, case.name());
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, 1 + i % 3);
        let (operands, values) = case.make(&lab.bench, laying);
        let y = (case.build)(&ctx, &operands).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(y.dtype(), case.made(), "{context}");
        let got = lab.run_all(&[y]).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_close(&got[0], &reference(&values), case.tolerance(y.dtype()), &context);
    }
}

#[test]
fn table_equals_plain_rust() {
    let rows = rows();
    // All of them, so that one wrong row doesn't hide another.
    let all =
        |row: &&Row| catch_unwind(AssertUnwindSafe(|| row.cases.iter().for_each(|case| check(row, case)))).is_err();
    let wrong: Vec<_> = rows.iter().filter(all).map(|row| row.name).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let compared = rows.iter().filter(|row| row.cases.iter().any(|case| case.reference.is_some())).count();
    assert!(compared > 70, "few have a reference: {compared}");
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
