//! Connections: as many as may be, with time limits, until the server ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long the head of a request may take to come, and how long a connection may be idle.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// Serves connections until `end`; then those under way have `grace`, or until `hurry`.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    connections: u16,
    end: impl Future<Output = ()>,
    grace: Duration,
    hurry: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(usize::from(connections)));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_headers(64);
    let mut end = std::pin::pin!(end);
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        let (stream, place) = tokio::select! {
            () = &mut end => break,
            next = next => match next {
                Some((Ok((stream, _)), place)) => (stream, place),
                // As where there are too many open files: others may be closed soon.
                Some((Err(_), _)) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                None => break,
            },
        };
        // A small answer isn't held back for more; if that can't be had, it is slower.
        let _slower = stream.set_nodelay(true).is_err();
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks concerns its client alone.
            let _broken = connection.await.is_err();
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(grace) => {}
        () = hurry => {}
    }
}
