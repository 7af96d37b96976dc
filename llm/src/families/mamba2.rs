//! Mamba 2: no attention, states of fixed size.

use super::missing;
use crate::blocks::Norm;
use crate::blocks::layer::Layer;
use crate::blocks::mamba2::Mamba2;
use crate::config::{Config, Ssm};
use crate::declare::Declare;
use crate::error::Result;
use crate::keys::Keys;

pub(super) fn config(keys: &Keys<'_>, mut config: Config) -> Result<Config> {
    let ssm = Ssm {
        d_conv: keys.count("ssm.conv_kernel")?,
        d_inner: keys.count("ssm.inner_size")?,
        d_state: keys.count("ssm.state_size")?,
        n_head: keys.count("ssm.time_step_rank")?,
        n_group: keys.count("ssm.group_count")?,
    };
    let Ssm { d_conv, d_inner, n_head, n_group, .. } = ssm;
    if d_conv < 2 {
        return Err(keys.wrong("ssm.conv_kernel", "2 or more"));
    }
    if d_inner % n_head != 0 {
        return Err(keys.wrong("ssm.time_step_rank", format!("a divisor of the inner size {d_inner}")));
    }
    if d_inner % n_group != 0 || n_head % n_group != 0 {
        let expected = format!("a divisor of the inner size {d_inner} and of the {n_head} heads");
        return Err(keys.wrong("ssm.group_count", expected));
    }
    config.ssm = Some(ssm);
    Ok(config)
}

pub(super) fn layer(d: &mut Declare<'_>, config: &Config) -> Result<Layer> {
    let ssm = config.ssm.as_ref().ok_or_else(|| missing(config, "states"))?;
    let norm = Norm::declare(d, "attn_norm", config.n_embd)?;
    Ok(Layer::Mamba2 { norm, mixer: Mamba2::declare(d, config.n_embd, ssm)? })
}
