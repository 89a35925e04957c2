//! A small HTTP service, instrumented with `metrics` and `tracing`, that exports to PCP with three lines.
//!
//! `cargo run --release --manifest-path qa/http/Cargo.toml --bin service -- --load`, then `pminfo -f mmv.shop` and
//! `pmval mmv.shop.http_requests_total`.
use std::error::Error;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use metrics::{counter, describe_counter, describe_histogram, gauge, histogram};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Exports the metrics of the facade …
    let exported = mmv::recorder::Recorder::new("shop")?.install()?;
    // … and counts spans and events.
    let layer = mmv::layer::MmvLayer::new(exported.registry())?;
    tracing_subscriber::registry().with(layer).init();

    describe_counter!("http_requests_total", "Requests served");
    describe_histogram!("http_request_duration", metrics::Unit::Seconds, "Time to serve a request");
    let app = Router::new()
        .route("/", get(|| async { "a small shop\n" }))
        .route("/items/{id}", get(item))
        .layer(middleware::from_fn(measure));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("http://{address}/items/1");
    if std::env::args().any(|arg| arg == "--load") {
        for client in 0..4 {
            tokio::spawn(load(address, client));
        }
    }
    let stop = async {
        _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    Ok(())
}

async fn item(Path(id): Path<u32>) -> (StatusCode, String) {
    let span = tracing::info_span!("look_up", id);
    let _entered = span.enter();
    if id % 10 == 0 {
        tracing::warn!(id, "no such item");
        return (StatusCode::NOT_FOUND, "no such item\n".into());
    }
    (StatusCode::OK, format!("item {id}\n"))
}

/// Counts and times every request.
async fn measure(request: Request, next: Next) -> Response {
    let method = request.method().to_string();
    let start = Instant::now();
    gauge!("http_requests_active").increment(1.0);
    let response = next.run(request).await;
    gauge!("http_requests_active").decrement(1.0);
    let status = response.status().as_u16().to_string();
    counter!("http_requests_total", "method" => method, "status" => status).increment(1);
    histogram!("http_request_duration").record(start.elapsed());
    response
}

/// Requests items one after the other.
async fn load(address: std::net::SocketAddr, client: u32) -> Result<(), std::io::Error> {
    let mut connection = TcpStream::connect(address).await?;
    let mut answer = vec![0; 4096];
    for request in 0.. {
        let path = format!("GET /items/{} HTTP/1.1\r\nhost: shop\r\n\r\n", (client + request) % 25);
        connection.write_all(path.as_bytes()).await?;
        if connection.read(&mut answer).await? == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    Ok(())
}
