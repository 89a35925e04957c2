//! A small HTTP service that is instrumented with `tracing`. Three lines show its spans and events in PCP.
//!
//! `cargo run --release --manifest-path qa/http/Cargo.toml --bin traced_service -- --load`, then
//! `pminfo -f trace.transact trace.point`, `pmval trace.transact.count`, and `pminfo -x trace.event.records`.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::get;
use pcp_trace::{Options, State, Trace, layer::TraceLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Shared memory if the agent on this host supports it, otherwise asynchronous TCP.
    let trace = Trace::new(Options::from_env()?.state(State::ASYNC));
    tracing_subscriber::registry().with(TraceLayer::new(trace)).init();

    let app = Router::new().route("/items/{id}", get(item));
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
    let request = tracing::info_span!("request", method = "GET", status = tracing::field::Empty);
    async {
        let (status, text) = look_up(id).instrument(tracing::info_span!("look up", id)).await;
        tracing::Span::current().record("status", status.as_u16());
        (status, text)
    }
    .instrument(request)
    .await
}

async fn look_up(id: u32) -> (StatusCode, String) {
    if id.is_multiple_of(10) {
        tracing::warn!(name: "no such item", id, "nothing has this number");
        return (StatusCode::NOT_FOUND, "no such item\n".into());
    }
    (StatusCode::OK, format!("item {id}\n"))
}

/// A client that requests one item after the other.
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
