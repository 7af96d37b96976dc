//! A line on who is connected.

use ggml::rpc::ClientInfo;

/// Who is connected, what they hold and what was sent: in words, or in JSON.
pub(crate) fn line(clients: &[ClientInfo], held: u64, json: bool) -> String {
    if json {
        // An address and numbers need no escapes.
        let each = clients.iter().map(|client| {
            let (address, held, traffic) = (client.address, client.held, client.traffic);
            format!(
                r#"{{"address":"{address}","held":{held},"requests":{},"sent":{},"received":{}}}"#,
                traffic.requests, traffic.sent, traffic.received
            )
        });
        return format!(r#"{{"clients":[{}],"held":{held}}}"#, each.collect::<Vec<_>>().join(","));
    }
    let mib = |bytes: u64| bytes >> 20;
    let each = clients.iter().map(|client| {
        let (address, held, traffic) = (client.address, mib(client.held), client.traffic);
        let (requests, sent, received) = (traffic.requests, mib(traffic.sent), mib(traffic.received));
        format!("; {address} holds {held} MiB, {requests} requests, {sent} MiB to it, {received} MiB from it")
    });
    format!("{} clients hold {} MiB{}", clients.len(), mib(held), each.collect::<String>())
}

#[cfg(test)]
mod tests {
    use ggml::prelude::*;
    use ggml::rpc::{self, Server};

    use super::*;

    #[test]
    fn lines_say_what_clients_hold() {
        assert_eq!(line(&[], 0, false), "0 clients hold 0 MiB");
        assert_eq!(line(&[], 0, true), r#"{"clients":[],"held":0}"#);
        let server = Server::builder().start().unwrap();
        let connection = rpc::connect(&server.address().to_string()).unwrap();
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, [1 << 20]).unwrap();
        let mut weights = builder.place(connection.devices()[0]).unwrap();
        weights.set("w", &vec![1.0_f32; 1 << 20]).unwrap();
        weights.element::<f32>("w", [0; 4]).unwrap(); // waits for the server
        let clients = server.clients();
        let (words, json) = (line(&clients, server.held(), false), line(&clients, server.held(), true));
        let address = clients[0].address;
        assert!(words.starts_with(&format!("1 clients hold 4 MiB; {address} holds 4 MiB, ")), "{words}");
        assert!(words.ends_with(" requests, 0 MiB to it, 4 MiB from it"), "{words}");
        assert!(
            json.starts_with(&format!(r#"{{"clients":[{{"address":"{address}","held":4194304,"requests":"#)),
            "{json}"
        );
    }
}
