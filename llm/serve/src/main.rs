//! `ggml-llm serve`: language models over HTTP, with OpenAI's API.

#[expect(clippy::indexing_slicing, reason = "objects of JSON take any key")]
mod answer;
mod app;
#[cfg(feature = "constrain")]
mod constrain;
mod engine;
mod failure;
mod job;
mod listen;
mod metrics;
mod options;
mod request;
mod routes;

use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

use app::App;
use engine::Parts;
use metrics::Metrics;
use options::ServeArguments;

#[expect(clippy::print_stderr, reason = "the program's output")]
fn main() -> ExitCode {
    #[cfg(feature = "constrain")]
    if std::env::args_os().nth(1).is_some_and(|first| first == constrain::TRY) {
        return constrain::try_one();
    }
    let arguments = ServeArguments::parse();
    let engine = std::thread::Builder::new().name("engine".into()).stack_size(STACK).spawn(|| run(arguments));
    match engine.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(error))) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
        // A panic was printed.
        Ok(Err(_)) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The stack of threads that compile and follow clients' schemas: eight times what was enough to try these.
const STACK: usize = 32 << 20;

fn api_key(arguments: &ServeArguments) -> Result<Option<String>> {
    let key = match &arguments.api_key_file {
        None => arguments.api_key.clone(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Some(text.lines().next().unwrap_or_default().trim().to_owned())
        }
    };
    ensure!(key.as_deref() != Some(""), "the API key is empty");
    Ok(key)
}

#[expect(clippy::print_stderr, reason = "the program's output")]
fn run(arguments: ServeArguments) -> Result<()> {
    ggml::Registry::load_all()?; // with `dynamic-backends`, there are no devices before
    let api_key = api_key(&arguments)?;
    let model = arguments.place.load()?;
    let tokenizer = Arc::new(model.tokenizer()?);
    let template = arguments.template.template(&model, &tokenizer)?;
    let n_seq = usize::from(arguments.parallel);
    let session = arguments.place.devices.session(Arc::clone(&model), n_seq)?;
    let stem = arguments.place.file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let (jobs, receiver) = mpsc::channel();
    let app = App {
        name: arguments.alias.clone().or(stem).unwrap_or_default(),
        created: app::now(),
        tokenizer: Arc::clone(&tokenizer),
        template,
        jobs,
        places: Arc::new(Semaphore::new(usize::from(arguments.queue))),
        queue: arguments.queue,
        n_ctx: session.room(),
        n_vocab: model.config().n_vocab,
        max_tokens: arguments.max_tokens.max(1),
        time_limit: arguments.time_limit(),
        body_limit: arguments.body_limit,
        api_key,
        special: arguments.special,
        #[cfg(feature = "constrain")]
        schemas: constrain::Schemas::new(&tokenizer).map(Arc::new).map_err(|error| error.to_string()),
        metrics: Metrics::new(),
    };
    let (grace, connections) = (arguments.grace(), arguments.connections);
    let address = (arguments.host.clone(), arguments.port);
    let ended = Arc::new(Notify::new());
    let metrics = app.metrics.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2) // the processors are the model's
        .max_blocking_threads(4)
        .thread_stack_size(STACK)
        .enable_all()
        .build()?;
    let listener =
        runtime.block_on(TcpListener::bind(&address)).with_context(|| format!("{}:{}", address.0, address.1))?;
    eprintln!("[{} at http://{}/v1; {n_seq} texts at once]", app.name, listener.local_addr()?);
    let mut parts = Parts { place: arguments.place, session, n_seq, tokenizer, metrics };
    let http = {
        let ended = Arc::clone(&ended);
        std::thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async {
                let end = async {
                    tokio::select! {
                        () = asked_to_end() => {}
                        () = ended.notified() => {}
                    }
                };
                let router = routes::router(Arc::new(app));
                listen::serve(listener, router, connections, end, grace, asked_to_end()).await;
            });
            // Requests that are left end here, and with them the last ways to the engine.
            runtime.shutdown_timeout(Duration::from_secs(5));
        })?
    };
    // A session stays on its thread.
    let result = engine::run(&mut parts, &receiver);
    drop(receiver);
    ended.notify_one();
    http.join().map_err(|_| anyhow::anyhow!("the thread of connections panicked"))?;
    result
}

/// Waits for SIGTERM or Ctrl-C.
async fn asked_to_end() {
    let interrupt = async {
        // Without a handler, Ctrl-C ends the program as usual.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
