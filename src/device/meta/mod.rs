//! Meta devices: which exist, and how weights and states are split among their members.

mod device;
mod lock;
mod place;
mod split;
mod views;

pub use device::MetaDevice;
pub use split::Split;

pub(crate) use device::{MetaDeviceInfo, any, before_use, buffer_type, is_host, is_meta, known, members, name};
pub(crate) use lock::lock_if_meta;
pub(crate) use place::{Divided, divide, state_of, transfers, views_of};
pub(crate) use split::State;
pub(crate) use views::Views;
