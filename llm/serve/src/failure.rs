//! What clients are told if there is no answer, in OpenAI's form.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why there is no answer, or no more of it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    param: Option<&'static str>,
    message: String,
}

impl Failure {
    fn new(status: StatusCode, kind: &'static str, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, kind, code, param: None, message: message.into() }
    }

    /// What the client sent can't be.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", None, message)
    }

    /// A field of the request can't be so.
    pub(crate) fn field(param: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param), ..Self::request(message) }
    }

    /// [`Failure::request`] with another status.
    pub(crate) fn refused(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", Some(code), message)
    }

    /// The prompt is longer than the context.
    pub(crate) fn too_long(tokens: usize, room: usize) -> Self {
        let message = format!("the prompt has {tokens} tokens, but the context has {room}, and an answer needs one");
        Self::refused(StatusCode::BAD_REQUEST, "context_length_exceeded", message)
    }

    /// As many requests wait as may.
    pub(crate) fn busy(queue: u16) -> Self {
        let message = format!("{queue} requests wait already; try again later");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("queue_full"), message)
    }

    /// The request waited too long.
    pub(crate) fn late() -> Self {
        let message = "the time limit came before the first token; try again later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("timeout"), message)
    }

    /// It can't be computed.
    pub(crate) fn server(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, message)
    }

    /// The thread that computes has ended.
    pub(crate) fn gone() -> Self {
        let message = "the model is no longer computed; see the server's log";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("gone"), message)
    }

    /// `{"error": …}`.
    pub(crate) fn json(&self) -> Value {
        let Self { kind, code, param, message, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.json())).into_response();
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
