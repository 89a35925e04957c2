//! Agent `health`: asks servers over HTTP whether they live, with an async client in a thread of its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request as Ask, header};
use hyper_util::rt::TokioIo;
use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

#[derive(clap::Args, Clone)]
struct Options {
    /// Server and path, such as 127.0.0.1:8080/health; may be given several times
    #[arg(long, default_value = "127.0.0.1:80/")]
    server: Vec<String>,
    /// Seconds between two questions
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
}

/// The last answer of a server, its status and time, or the reason why there is none.
type Answer = Result<(u16, Duration), String>;

/// Agent health.
pub struct Health {
    options: Options,
    /// The servers, and their last answers.
    answers: Vec<(String, Background<Answer>)>,
    servers: Table<Answer>,
}

impl Agent for Health {
    const NAME: &'static str = "health";
    const DOMAIN: u16 = 493;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let options = Options::from_arg_matches(setup.options())?;
        let mut servers = setup.table(Serial::new(0), |health: &Health| &health.servers).persistent();
        servers.help("Servers", "As the option --server names them.");
        let up = servers.gauge("health.up", Item::new(0, 0), |answer| matches!(answer, Ok((200..=299, _))));
        up.help("Whether the server lives", "1 if its last answer had a status of success, and otherwise 0.");
        let status = servers.discrete("health.status", Item::new(0, 1), |answer| Some(answer.as_ref().ok()?.0));
        status.help("HTTP status of the last answer", "");
        let time = servers.gauge("health.time", Item::new(0, 2), |answer| Some(answer.as_ref().ok()?.1));
        time.units(Units::SECONDS).help("Time until the last answer", "");
        let error = servers.discrete("health.error", Item::new(0, 3), |answer| answer.clone().err());
        error.help("Why there is no answer", "No value if there is one.");
        Ok(Health { options, answers: Vec::new(), servers: servers.finish(setup) })
    }

    /// Starts the thread: here, and not in `new`, which also runs when the agent only writes its files.
    fn open(&mut self) -> Result<(), BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let every = Duration::from_secs(self.options.every);
        for server in self.options.server.iter().cloned().collect::<BTreeSet<_>>() {
            let (publisher, answers) = Background::channel()?;
            self.answers.push((server.clone(), answers.named(&server)));
            runtime.spawn(async move {
                while !publisher.is_closed() {
                    let answer = timeout(Duration::from_secs(5), ask(&server)).await;
                    publisher.publish(answer.unwrap_or(Err("no answer in 5 s".into())).map_err(|e| e.to_string()));
                    sleep(every).await;
                }
            });
        }
        std::thread::Builder::new()
            .name("health".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        Ok(())
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        let answers = self.answers.iter().filter_map(|(server, answer)| Some((server, answer.latest().ok()?)));
        self.servers.refresh(request, |rows| {
            answers.for_each(|(server, answer)| _ = rows.add(server, Answer::clone(&answer)));
            Ok(())
        });
        Ok(())
    }
}

async fn ask(server: &str) -> Result<(u16, Duration), pmda::BoxError> {
    let start = Instant::now();
    let (host, path) = server.split_at(server.find('/').unwrap_or(server.len()));
    let (mut sender, connection) = http1::handshake(TokioIo::new(TcpStream::connect(host).await?)).await?;
    tokio::spawn(connection);
    let question =
        Ask::get(if path.is_empty() { "/" } else { path }).header(header::HOST, host).body(Empty::<Bytes>::new())?;
    Ok((sender.send_request(question).await?.status().as_u16(), start.elapsed()))
}
