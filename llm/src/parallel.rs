//! Tensor parallelism: each device has some heads of the attention, and some rows of the feed-forward network, of every
//! layer; the keys and values of its heads are in its part of the cache.

use std::collections::HashMap;

use ggml::meta::{MetaDevice, SplitMode};
use ggml::{Device, TensorInfo};

use crate::config::Config;
use crate::declare::Declared;
use crate::error::{Error, Result};

/// The meta device of these members, which holds the model's tensors and the cache. `parts` says how many parts of each
/// layer a member gets, `block` how many elements of a row of a matrix are stored together.
///
/// ggml never frees a meta device, nor what it knows of the model: some kilobytes.
pub(crate) fn device(
    config: &Config,
    declared: &[Declared],
    members: &[Device],
    parts: &[u32],
    block: impl Fn(&str) -> Result<usize>,
) -> Result<Device> {
    let refuse = |expected| {
        let value = format!("a model of architecture `{}`", config.architecture).into();
        Error::Options { name: "split_mode", value, expected }
    };
    let has = |name: &str| declared.iter().any(|d| d.name.ends_with(name));
    let is_dense = config.experts.is_none() && has(".attn_q.weight") && has(".ffn_gate.weight");
    let attention = config.attention.as_ref().filter(|_| is_dense && !has(".attn_sinks.weight"));
    let Some(attention) = attention else {
        return Err(refuse("a dense model whose matrices are not fused: llama, qwen2, qwen3, gemma3"));
    };
    // The most elements that are stored together in rows of the matrices with this name.
    let widest = |name: &str| -> Result<usize> {
        let all = declared.iter().filter(|d| d.name.ends_with(name));
        all.map(|d| block(&d.name)).try_fold(1, |most, block| Ok(most.max(block?)))
    };
    // Heads that share keys stay together. Their values are rows of the output matrix, in whole blocks.
    let group = attention.n_head / attention.n_head_kv.max(1);
    let output_block = widest(".attn_output.weight")?;
    let heads = 1..=attention.n_head_kv;
    let whole = |n: &usize| (n * group * attention.n_embd_head_v).is_multiple_of(output_block);
    let unit = heads.clone().find(whole).unwrap_or(attention.n_head_kv);
    let too_few = "few enough devices that each gets heads and blocks of each matrix";
    let heads = shares(attention.n_head_kv, unit, parts).ok_or_else(|| refuse(too_few))?;
    let hidden = shares(config.n_ff, widest(".ffn_down.weight")?, parts).ok_or_else(|| refuse(too_few))?;
    let tokens = shares(config.n_vocab, 1, parts).ok_or_else(|| refuse(too_few))?;
    let times = |n: usize| -> Box<[i64]> { heads.iter().map(|h| h * i64::try_from(n).unwrap_or(i64::MAX)).collect() };
    let k_rows = times(attention.n_embd_head_k);
    let v_rows = times(attention.n_embd_head_v);
    let q_rows = times(group * attention.n_embd_head_k);
    let merged = times(group * attention.n_embd_head_v);
    let (hidden, tokens) = (hidden.into_boxed_slice(), tokens.into_boxed_slice());
    let splits: HashMap<&str, (usize, Box<[i64]>)> = [
        ("attn_q.weight", (1, q_rows.clone())),
        ("attn_q.bias", (0, q_rows)),
        ("attn_k.weight", (1, k_rows.clone())),
        ("attn_k.bias", (0, k_rows.clone())),
        ("attn_v.weight", (1, v_rows.clone())),
        ("attn_v.bias", (0, v_rows.clone())),
        ("attn_output.weight", (0, merged)),
        ("ffn_gate.weight", (1, hidden.clone())),
        ("ffn_gate.bias", (0, hidden.clone())),
        ("ffn_up.weight", (1, hidden.clone())),
        ("ffn_up.bias", (0, hidden.clone())),
        ("ffn_down.weight", (0, hidden)),
        ("output.weight", (1, tokens.clone())),
        ("output.bias", (0, tokens.clone())),
        ("token_embd.weight", (1, tokens)), // where it is the output's matrix, too
        ("k", (0, k_rows)),
        ("v", (0, v_rows)),
    ]
    .into();
    let choose = move |t: &TensorInfo| {
        let found = splits.get(kind(&t.name));
        found.map_or(SplitMode::Mirrored, |(axis, shares)| SplitMode::Shares { axis: *axis, shares: shares.to_vec() })
    };
    Ok(MetaDevice::new(members, choose)?.device())
}

/// A tensor's name without its layer: `blk.3.attn_q.weight` in a file, `k.3` in the cache.
fn kind(name: &str) -> &str {
    if let Some((_, rest)) = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')) {
        return rest;
    }
    name.split_once('.').filter(|(cache, _)| *cache == "k" || *cache == "v").map_or(name, |(cache, _)| cache)
}

/// Divides `n` elements in whole units by these parts; `None` if a device would get nothing.
fn shares(n: usize, unit: usize, parts: &[u32]) -> Option<Vec<i64>> {
    let units = u128::try_from(n / unit).ok().filter(|_| n.is_multiple_of(unit))?;
    let total: u128 = parts.iter().map(|&part| u128::from(part)).sum();
    let (mut sum, mut start) = (0, 0);
    let next = |&part: &u32| {
        sum += u128::from(part);
        let end = (units * sum + total / 2).checked_div(total)?;
        let share = end.checked_sub(start).filter(|&share| share > 0)?;
        start = end;
        i64::try_from(share * unit as u128).ok()
    };
    parts.iter().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::{kind, shares};

    #[test]
    fn shares_are_whole_units_by_parts() {
        assert_eq!(shares(8, 1, &[1, 1]), Some(vec![4, 4]));
        assert_eq!(shares(3, 1, &[1, 1]), Some(vec![2, 1]));
        assert_eq!(shares(12, 2, &[3, 1]), Some(vec![10, 2]));
        assert_eq!(shares(1024, 256, &[1, 1, 1]), Some(vec![256, 512, 256]));
        assert_eq!(shares(2, 1, &[1, 1, 1]), None, "nothing for the third");
        assert_eq!(shares(100, 32, &[1, 1]), None, "no whole units");
        assert_eq!(shares(8, 1, &[1, 0]), None, "a device without a part");
        assert_eq!(shares(8, 1, &[0, 0]), None);
        assert_eq!(shares(usize::MAX, 1, &[u32::MAX, 1]), None, "no overflow");
    }

    #[test]
    fn kinds_are_names_without_layers() {
        for (name, expected) in [
            ("blk.12.attn_q.weight", "attn_q.weight"),
            ("k.3", "k"),
            ("v.30", "v"),
            ("output.weight", "output.weight"),
            ("output_norm.weight", "output_norm.weight"),
        ] {
            assert_eq!(kind(name), expected);
        }
    }
}
