//! What a server offers; queried before ggml is told of the server, so that ggml's own queries can't fail.

use std::io::Write;

use super::link::Link;
use super::peer::{self, Peer};
use super::wire::{self, Command};
use crate::device::lost::ConnectionError;

/// The answers to everything that ggml's client asks when it creates the server's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Survey {
    devices: Vec<Offer>,
}

/// What ggml's client stores permanently about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    alignment: u64,
    max_size: u64,
}

impl Survey {
    /// Queries the server that `peer` is connected to. Each answer has the handshake's time limit.
    pub(super) fn make(peer: &mut Peer, link: &Link) -> Result<Self, ConnectionError> {
        let count = ask(peer, link, Command::DeviceCount, &[])?;
        if count == 0 {
            return Err("it offers no devices".into());
        }
        let count = u32::try_from(count).map_err(|e| e.to_string())?;
        let offer = |device: u32| {
            let device = device.to_le_bytes();
            Ok(Offer {
                alignment: ask(peer, link, Command::GetAlignment, &device)?,
                max_size: ask(peer, link, Command::GetMaxSize, &device)?,
            })
        };
        Ok(Self { devices: (0..count).map(offer).collect::<Result<_, ConnectionError>>()? })
    }

    /// Fails unless the server that `peer` is connected to offers the same. Another server may have taken the address.
    pub(super) fn check(&self, peer: &mut Peer, link: &Link) -> Result<(), ConnectionError> {
        let is_same = (Self::make(peer, link)? == *self).then_some(());
        is_same.ok_or_else(|| "it was replaced by a server of other devices".into())
    }

    /// The relay's own answer to a request: one that this survey knows, or that the server must not give.
    pub(super) fn answer(&self, command: Command, request: &[u8]) -> Option<Vec<u8>> {
        let offer = || self.devices.get(usize::try_from(wire::device(request)).ok()?);
        match command {
            Command::DeviceCount if !self.devices.is_empty() => {
                let count = u32::try_from(self.devices.len()).ok()?;
                Some(count.to_le_bytes().to_vec())
            }
            Command::GetAlignment => offer().map(|offer| offer.alignment.to_le_bytes().to_vec()),
            // Declined: servers would connect to the relay's address, not to each other. The client then reduces
            // locally.
            Command::CommInit => Some(vec![0]),
            Command::GetMaxSize => offer().map(|offer| offer.max_size.to_le_bytes().to_vec()),
            _ => None,
        }
    }
}

/// Queries a number.
fn ask(peer: &mut Peer, link: &Link, command: Command, request: &[u8]) -> Result<u64, ConnectionError> {
    let limit = link.options().connect_limit();
    peer.limit(limit);
    let broken = |e| peer::fault(e, command, limit);
    let sent = request.len() as u64;
    let send = |peer: &mut Peer| {
        peer.writer.write_all(&wire::request_head(command, sent))?;
        peer.writer.write_all(request)?;
        peer.writer.flush()?;
        peer.read_len()
    };
    let mut number = [0; 8];
    let expected = command.reply_len(request).unwrap_or_default();
    link.traffic.add(wire::REQUEST_HEAD as u64 + sent, wire::REPLY_HEAD as u64 + expected);
    let len = send(peer).map_err(broken)?;
    let reply = usize::try_from(len).ok().filter(|_| len == expected).and_then(|len| number.get_mut(..len));
    let Some(reply) = reply else {
        return Err(peer::wrong_length(command, len, expected));
    };
    peer.read_exact(reply).map_err(broken)?;
    match command.refusal(request, reply) {
        Some(refusal) => Err(refusal.into()),
        None => Ok(u64::from_le_bytes(number)),
    }
}
