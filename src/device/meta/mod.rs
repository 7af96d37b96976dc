//! Meta devices: which exist, and how weights and states are split among their members.

mod device;
mod lock;
mod place;
mod raw;
mod split;
mod views;

pub use device::MetaDevice;
pub use split::SplitMode;

pub(super) use raw::Owned;

pub(crate) use device::{MetaDeviceInfo, any, before_use, buffer_type, is_host, is_meta, known, members, name};
pub(crate) use lock::lock_if_meta;
pub(crate) use place::{Sharded, shard, state_of, transfers, views_of};
pub(crate) use split::SplitState;
pub(crate) use views::Views;
