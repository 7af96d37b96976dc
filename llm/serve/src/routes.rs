//! The paths, and what is done for each.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use crate::answer::{self, Head};
use crate::app::App;
use crate::failure::Failure;
use crate::metrics::Answer;
use crate::request::{ChatRequest, CompletionRequest, EmbeddingRequest, Options};

type Shared = State<Arc<App>>;

/// The most new tokens of a completion for which the client gives no limit: OpenAI's.
const USUAL_COMPLETION: usize = 16;

/// How long the rest of a request may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);

pub(crate) fn router(app: Arc<App>) -> Router {
    let keyed = Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{model}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/embeddings", post(embeddings))
        .route("/metrics", get(metrics))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), key))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), count));
    keyed.route("/health", get(health)).fallback(unknown).method_not_allowed_fallback(other_method).with_state(app)
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

async fn unknown(request: Request) -> Failure {
    let message = format!("there is no {:?}", request.uri().path());
    Failure::refused(StatusCode::NOT_FOUND, "not_found", message)
}

async fn other_method(request: Request) -> Failure {
    let message = format!("{:?} has no {}", request.uri().path(), request.method());
    Failure::refused(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

/// Asks for the key, if the server has one.
async fn key(State(app): Shared, request: Request, next: Next) -> Response {
    let Some(wanted) = &app.api_key else { return next.run(request).await };
    let given = request.headers().get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes).unwrap_or_default();
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    if bool::from(given.ct_eq(wanted.as_bytes())) {
        return next.run(request).await;
    }
    let message = "the request has no key of this server: `Authorization: Bearer KEY`";
    Failure::refused(StatusCode::UNAUTHORIZED, "invalid_api_key", message).into_response()
}

async fn count(State(app): Shared, path: MatchedPath, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let answer = Answer { path: path.as_str().to_owned(), status: response.status().as_u16() };
    app.metrics.requests.get_or_create(&answer).inc();
    response
}

async fn metrics(State(app): Shared) -> Result<Response, Failure> {
    let text = app.metrics.text().map_err(|e| Failure::server(e.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

fn description(app: &App) -> Value {
    json!({ "id": app.name, "object": "model", "created": app.created, "owned_by": "ggml-llm" })
}

async fn models(State(app): Shared) -> Json<Value> {
    Json(json!({ "object": "list", "data": [description(&app)] }))
}

async fn model(State(app): Shared, path: axum::extract::Path<String>) -> Result<Json<Value>, Failure> {
    app.check_model(Some(&path.0))?;
    Ok(Json(description(&app)))
}

/// Reads a request. Its type is JSON, whatever its header says.
async fn read<T: DeserializeOwned>(app: &App, request: Request) -> Result<T, Failure> {
    let too_large = || {
        let message = format!("the request has more than {} bytes", app.body_limit);
        Failure::refused(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|n| n > app.body_limit as u64) {
        return Err(too_large());
    }
    let body = tokio::time::timeout(BODY_TIME, axum::body::to_bytes(request.into_body(), app.body_limit)).await;
    let Ok(body) = body else {
        return Err(Failure::refused(StatusCode::REQUEST_TIMEOUT, "timeout", "the request took too long to come"));
    };
    let bytes = body.map_err(|_| too_large())?;
    serde_json::from_slice(&bytes).map_err(|e| Failure::request(format!("the request can't be read: {e}")))
}

/// Work that takes longer than others may wait for on this thread.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(Failure::server(e.to_string())))
}

async fn completions(State(app): Shared, request: Request) -> Result<Response, Failure> {
    let CompletionRequest { prompt, options } = read(&app, request).await?;
    let texts = {
        let app = Arc::clone(&app);
        move || prompt.list().into_iter().map(|prompt| app.tokens(prompt)).collect::<Result<Vec<_>, _>>()
    };
    answer(app, false, options, texts, USUAL_COMPLETION).await
}

async fn chat(State(app): Shared, request: Request) -> Result<Response, Failure> {
    let request: ChatRequest = read(&app, request).await?;
    let messages = request.messages()?;
    let usual = app.max_tokens;
    let texts = {
        let app = Arc::clone(&app);
        move || Ok(vec![app.chat_tokens(&messages)?])
    };
    answer(app, true, request.options, texts, usual).await
}

/// Answers to some texts.
async fn answer(
    app: Arc<App>,
    chat: bool,
    options: Options,
    texts: impl FnOnce() -> Result<Vec<Vec<i32>>, Failure> + Send + 'static,
    usual: usize,
) -> Result<Response, Failure> {
    options.check()?;
    app.check_model(options.model.as_deref())?;
    let stream = options.is_streamed();
    let with_usage = options.stream_options.as_ref().is_some_and(|o| o.include_usage == Some(true));
    let each = usize::try_from(options.n.unwrap_or(1)).unwrap_or(usize::MAX);
    let texts = apart(texts).await?;
    let n = texts.len().saturating_mul(each);
    let chooser = app.chooser(&options).await?;
    let events = app.generate(texts, options, usual, chooser)?;
    let id = format!("{}-{:016x}", if chat { "chatcmpl" } else { "cmpl" }, fastrand::u64(..));
    let head = Head { chat, id, created: crate::app::now(), model: app.name.clone() };
    if stream {
        return answer::stream(head, n, with_usage, events).await;
    }
    Ok(Json(answer::whole(&head, n, events).await?).into_response())
}

async fn embeddings(State(app): Shared, request: Request) -> Result<Json<Value>, Failure> {
    let EmbeddingRequest { input, model, encoding_format, dimensions } = read(&app, request).await?;
    app.check_model(model.as_deref())?;
    if dimensions.is_some() {
        return Err(Failure::field("dimensions", "this server has no `dimensions`"));
    }
    let base64 = match encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("`encoding_format` is {other:?}; expected \"float\" or \"base64\"");
            return Err(Failure::field("encoding_format", message));
        }
    };
    let texts = {
        let app = Arc::clone(&app);
        move || input.list().into_iter().map(|prompt| app.tokens(prompt)).collect::<Result<Vec<_>, _>>()
    };
    let texts = apart(texts).await?;
    let n = texts.len();
    let events = app.embed(texts)?;
    Ok(Json(answer::embeddings(&app.name, n, base64, events).await?))
}
