//! The server, over HTTP.

#![cfg(test)]

mod answers;
mod hostile;
mod limits;
mod many;
mod server;
