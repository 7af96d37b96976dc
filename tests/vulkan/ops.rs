//! Every operation that the device supports, compared with the CPU: the rows of the table, by ggml's operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};
use libtest_mimic::{Failed, Trial};
use testkit::bench::Bench;
use testkit::cases::case::Case;
use testkit::cases::{Row, rows};

use crate::{REACH, backend, cpu};

/// Supported operations that are not computed here.
const EXCLUDED: [(&str, &str); 2] =
    [("OPT_STEP_ADAMW", "training makes it, and none of its graphs is for a device"), ("OPT_STEP_SGD", "likewise")];

/// Operations that a GPU can run, but Mesa's lavapipe can't.
pub(crate) const LAVAPIPE: [(&str, &str); 3] = [
    ("FLASH_ATTN_EXT", "Mesa 22.3 crashes in its shaders"),
    ("RMS_NORM, MUL and ADD computed together", "Mesa 22.3 takes minutes to compile that shader"),
    ("ADD and RMS_NORM computed together", "Mesa 22.3 takes minutes to compile that shader"),
];

/// Operations without a row, and without a Vulkan shader.
const UNCLAIMED: &[&str] = &["FLASH_ATTN_BACK", "MAP_CUSTOM1", "MAP_CUSTOM2", "MAP_CUSTOM3", "CUSTOM"];

/// Operations that need features which lavapipe lacks.
const UNCLAIMED_BY_LAVAPIPE: [&str; 1] = ["DSV4_HC_COMB"];

/// What is tested in another way.
const APART: [&str; 1] = ["TOP_K"];

/// The largest values of each row, in any order.
fn top_k() -> std::result::Result<(), Failed> {
    let ctx = Context::new();
    let bench = Bench::new(&ctx, REACH);
    for (n, k, claimed) in [(67, 5, true), (300, 40, true), (67, 1, false)] {
        let x = bench.within(DType::F32, [n, 4], -3.0, -1.0);
        let y = ctx.top_k(x, k)?;
        assert_eq!(crate::vulkan().supports_op(y)?, claimed, "{k} of {n}");
        if !claimed {
            continue;
        }
        let graph = ctx.graph([y])?;
        let found = [backend(), cpu()].map(|mut backend| -> Result<Vec<Vec<i32>>> {
            let mut allocator = GraphAllocator::new(backend.device().buffer_type());
            let mut memory = allocator.alloc(&graph, &mut backend)?;
            bench.set(|t, bytes| memory.set_bytes(t, bytes))?;
            memory.compute()?;
            let mut rows: Vec<Vec<i32>> = memory.get::<i32>(y)?.chunks(k as usize).map(<[i32]>::to_vec).collect();
            for row in &mut rows {
                row.sort_unstable();
            }
            Ok(rows)
        });
        let [device, cpu] = found;
        assert_eq!(device?, cpu?, "{k} of {n}");
        let mut counts = COUNTS.lock().unwrap();
        counts.cases += 1;
    }
    COUNTS.lock().unwrap().ops += 1;
    Ok(())
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) ops: usize,
    pub(crate) cases: usize,
    pub(crate) refused: usize,
}

static COUNTS: Mutex<Counts> = Mutex::new(Counts { ops: 0, cases: 0, refused: 0 });

pub(crate) fn counts() -> Counts {
    std::mem::take(&mut *COUNTS.lock().unwrap())
}

pub(crate) fn excluded() -> usize {
    EXCLUDED.len() + if crate::is_software() { LAVAPIPE.len() } else { 0 }
}

/// The rows by ggml's name of the operation. Builders of several operations are on their own.
fn by_op() -> BTreeMap<String, Vec<Row>> {
    let mut all = BTreeMap::<_, Vec<Row>>::new();
    for row in rows().into_iter().filter(|row| !row.looks() && !APART.contains(&row.op)) {
        let key = if row.op.is_empty() { row.name } else { row.op };
        all.entry(key.to_owned()).or_default().push(row);
    }
    all
}

/// Cases for which Mesa compiles shaders for minutes: long rows, and products of many types or numbers of columns.
fn is_slow(row: &Row, case: &Case) -> bool {
    let dtype_in = |few: &[DType]| few.contains(&case.operands[0].dtype);
    let slow = match row.op {
        "SOFT_MAX" => case.operands[0].ne[0] > 1000,
        "MUL_MAT" => match case.operands[1].ne[1] {
            1 => !dtype_in(&[DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q8_0, DType::Q4_K]),
            12 | 40 => !dtype_in(&[DType::F32, DType::F16, DType::Q4_0]),
            _ => true,
        },
        "MUL_MAT_ID" => !dtype_in(&[DType::F32, DType::Q8_0]),
        _ => false,
    };
    slow && crate::is_software()
}

/// Whether the device claims all that a result is made of: some operations are several.
fn is_claimed<'c>(ctx: &'c Context, y: Tensor<'c>) -> Result<bool> {
    let graph = ctx.graph([y])?;
    let mut nodes = graph.nodes();
    nodes.try_fold(true, |all, node| Ok(all && crate::vulkan().supports_op(node)?))
}

/// Compares a row's cases that the device claims, and returns how many there are, and how many it doesn't claim.
fn compare(row: &Row) -> std::result::Result<[usize; 2], Failed> {
    let (mut all, mut refused, mut wrong) = (0, 0, Vec::new());
    for case in row.cases.iter().filter(|case| !case.lone && !is_slow(row, case)) {
        let ctx = Context::new();
        let bench = Bench::new(&ctx, REACH);
        let outputs: Result<Vec<_>> = case.layings().iter().map(|laying| case.build(&bench, laying)).collect();
        let mut claimed = Vec::new();
        for y in outputs? {
            if is_claimed(&ctx, y)? {
                claimed.push(y);
            } else {
                refused += 1;
            }
        }
        all += claimed.len();
        if !claimed.is_empty() {
            let comparison = bench.compare(&claimed, case.near, &mut backend(), &mut cpu())?;
            if !comparison.agrees() {
                wrong.push(format!("{} of {}: {comparison}", row.name, case.name()));
            }
        }
    }
    if wrong.is_empty() { Ok([all, refused]) } else { Err(wrong.join("\n").into()) }
}

fn check(op: &str, rows: &[Row]) -> std::result::Result<(), Failed> {
    let (mut all, mut refused) = (0, 0);
    for row in rows {
        let [n, others] = compare(row)?;
        let expected = row.vulkan && !(crate::is_software() && UNCLAIMED_BY_LAVAPIPE.contains(&op));
        let computes = row.cases.iter().any(|case| !is_slow(row, case));
        if computes && (n == 0) == expected {
            return Err(format!("{}: {n} of {} cases are claimed", row.name, n + others).into());
        }
        all += n;
        refused += others;
    }
    let mut counts = COUNTS.lock().unwrap();
    counts.refused += refused;
    counts.ops += usize::from(all > 0);
    counts.cases += all;
    Ok(())
}

/// Every ggml operation is in the table or in one of the lists.
fn every_operation_is_accounted_for() -> std::result::Result<(), Failed> {
    let mut listed: BTreeSet<String> = rows().iter().map(|row| row.op.to_owned()).filter(|op| !op.is_empty()).collect();
    for name in EXCLUDED.map(|(name, _)| name).iter().chain(UNCLAIMED).chain(&["NONE"]) {
        if !listed.insert((*name).to_owned()) {
            return Err(format!("{name} is in the table, and in a list").into());
        }
    }
    let all: BTreeSet<_> = (0..ggml::sys::GGML_OP_COUNT)
        .map(|op| {
            // SAFETY: `op` is below the number of operations; the call looks it up in a constant table.
            let text = unsafe { ggml::sys::ggml_op_name(op) };
            // SAFETY: `ggml_op_name` returns a NUL-terminated string literal.
            unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap().to_owned()
        })
        .collect();
    let differ: Vec<_> = all.symmetric_difference(&listed).collect();
    if differ.is_empty() { Ok(()) } else { Err(format!("not in both: {differ:?}").into()) }
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("every_operation_is_accounted_for", every_operation_is_accounted_for)];
    trials.push(Trial::test("ops::TOP_K", top_k));
    trials.extend(by_op().into_iter().map(|(op, rows)| {
        let why = LAVAPIPE.iter().find(|(name, _)| crate::is_software() && *name == op);
        let name = why.map_or_else(|| format!("ops::{op}"), |(name, why)| format!("ops::{name} ({why})"));
        Trial::test(name, move || check(&op, &rows)).with_ignored_flag(why.is_some())
    }));
    trials.extend(EXCLUDED.map(|(name, why)| {
        Trial::test(format!("ops::{name} ({why})"), || Err("it is excluded".into())).with_ignored_flag(true)
    }));
    trials
}
