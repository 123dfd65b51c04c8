//! The page: three files that are part of the program.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

pub(super) async fn index() -> impl IntoResponse {
    let content = include_str!("page/index.html");
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], content)
}

pub(super) async fn script() -> impl IntoResponse {
    let content = include_str!("page/app.js");
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], content)
}

pub(super) async fn style() -> impl IntoResponse {
    let content = include_str!("page/style.css");
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], content)
}
