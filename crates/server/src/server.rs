//! The server: its socket, its connections and its end.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use sporran_kilt::{observe::Observer, with_causes};
use tokio::sync::{Notify, Semaphore};

use crate::{BrowseOptions, Error, Result, ServerOptions, State, Stop, heap, routes};

/// The threads of the HTTP side. They do not compute.
const THREADS: usize = 2;
/// The threads that read prompts and tokens for requests.
const BLOCKING_THREADS: usize = 4;
/// The time in which requests on open connections may still arrive after the stop.
const LATE: Duration = Duration::from_millis(100);
/// The longest time in which the head of a request arrives.
const HEAD: Duration = Duration::from_secs(30);

/// A server that listens, and answers when it [runs](Self::run).
///
/// ```no_run
/// use std::path::PathBuf;
///
/// use sporran_pipeline::workflows::answer::AskOptions;
/// use sporran_server::{Server, ServerOptions, Stop};
///
/// let notes = AskOptions::new(vec!["notes".into()], PathBuf::from("cache"));
/// let options = ServerOptions { mounts: vec![notes], ..ServerOptions::new() };
/// let server = Server::open(options, &Stop::new(), &mut |_| {})?;
/// println!("http://{}", server.address());
/// server.run()?;
/// # Ok::<(), sporran_server::Error>(())
/// ```
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
    stop: Stop,
}

impl Server {
    /// Opens what the options name, and listens. Builds missing indexes. With glibc it limits the heaps of the process to the number
    /// of cores.
    ///
    /// # Errors
    /// Errors of configs, documents and models; an address that is in use; options that name nothing to serve.
    pub fn open(options: ServerOptions, stop: &Stop, observe: &mut Observer<'_>) -> Result<Self> {
        let models = &options.models;
        let has_model =
            [&models.embedder, &models.reranker, &models.classifier].iter().any(|model| model.is_some());
        if options.mounts.is_empty() && !has_model && options.browse == BrowseOptions::default() {
            return Err(Error::Nothing);
        }
        heap::limit();
        let wanted = SocketAddr::new(options.host, options.port);
        let failed = |source| Error::Io { what: format!("listening on {wanted}"), source };
        // An address that is in use is told before models are loaded. It is not held meanwhile, so that clients are refused until
        // requests are answered.
        drop(TcpListener::bind(wanted).map_err(failed)?);
        let state = Arc::new(State::open(options, stop.clone(), observe)?);
        let listener = TcpListener::bind(wanted).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, state, stop: stop.clone() })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What requests share.
    #[must_use]
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Answers requests until it is stopped, by [`Stop::now`] or by SIGTERM. Then it takes no new connections, and answers the
    /// requests that were begun within the limits' time of grace. SIGHUP opens all mounts again.
    ///
    /// # Errors
    /// A system without threads or sockets.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("http")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { what: "starting threads".to_owned(), source })?;
        let grace = self.state.limits().grace;
        let done = runtime.block_on(self.serve());
        // A stream that is longer than the time of grace ends here.
        runtime.shutdown_timeout(grace.min(Duration::from_secs(1)));
        done
    }

    async fn serve(self) -> Result<()> {
        let Self { listener, address, state, stop } = self;
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|source| Error::Io { what: format!("listening on {address}"), source })?;
        signals(&state, &stop)?;
        tokio::spawn(async {
            loop {
                tokio::time::sleep(heap::INTERVAL).await;
                // It waits for locks of the allocator. The runtime's end ends the loop, whatever a trim that is on its way gives.
                let _ = tokio::task::spawn_blocking(heap::trim).await;
            }
        });
        let connections = Arc::new(Semaphore::new(state.limits().connections));
        let open = GracefulShutdown::new();
        let router = routes::router(Arc::clone(&state));
        loop {
            // Further connections wait in the socket's backlog.
            let place = tokio::select! {
                place = Arc::clone(&connections).acquire_owned() => place,
                () = stop.called() => break,
            };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.called() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    // Small responses do not wait for more.
                    let _ = stream.set_nodelay(true);
                    let connection = connection(stream, router.clone());
                    let (connection, metrics) = (open.watch(connection), Arc::clone(&state));
                    tokio::spawn(async move {
                        metrics.metrics().connections.inc();
                        if let Err(error) = connection.await {
                            tracing::debug!("a connection ended: {error}");
                        }
                        metrics.metrics().connections.dec();
                        drop(place);
                    });
                }
                Err(error) => {
                    // Such as too many open files. The next try must not use all of a core.
                    tracing::warn!("a connection was not accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        // Connections that wait in the backlog were begun, and so are requests that are on their way.
        while let Ok(Ok((stream, _))) = tokio::time::timeout(Duration::ZERO, listener.accept()).await {
            tokio::spawn(open.watch(connection(stream, router.clone())));
        }
        drop(listener);
        tokio::time::sleep(LATE).await;
        let grace = state.limits().grace;
        if tokio::time::timeout(grace, open.shutdown()).await.is_err() {
            tracing::warn!("requests were not over after {} s", grace.as_secs());
        }
        Ok(())
    }
}

/// A connection with its service.
fn connection(
    stream: tokio::net::TcpStream,
    router: Router,
) -> http1::Connection<TokioIo<tokio::net::TcpStream>, TowerToHyperService<Router>> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
}

/// Handles SIGTERM and SIGHUP.
#[cfg(unix)]
fn signals(state: &Arc<State>, stop: &Stop) -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let failed = |source| Error::Io { what: "handling a signal".to_owned(), source };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    // A reload may build an index, and the server can be told to end meanwhile.
    let (state, reloads) = (Arc::clone(state), Arc::new(Notify::new()));
    tokio::spawn(one_at_a_time(Arc::clone(&reloads), move || reload(Arc::clone(&state))));
    let stop = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => stop.now(),
                _ = hang_up.recv() => reloads.notify_one(),
                () = stop.called() => return,
            }
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn signals(_: &Arc<State>, _: &Stop) -> Result<()> {
    Ok(())
}

/// Does work each time that it is asked for. What is asked for during the work is done once after it.
#[cfg(unix)]
async fn one_at_a_time<F: Future>(asked: Arc<Notify>, work: impl Fn() -> F) {
    loop {
        // It keeps one notice.
        asked.notified().await;
        work().await;
    }
}

/// Opens all mounts again, on a thread of its own.
#[cfg(unix)]
async fn reload(state: Arc<State>) {
    let done = tokio::task::spawn_blocking(move || state.reload(&mut |_| {})).await;
    match done {
        Ok(Ok(())) => tracing::info!("all mounts were opened again"),
        Ok(Err(error)) => tracing::error!("the mounts stay as they were: {}", with_causes(&error)),
        Err(error) => tracing::error!("the mounts stay as they were: {error}"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn reloads_that_are_asked_for_during_one_are_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (asked, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let [running, most, done] = [0; 3].map(|_| Arc::new(AtomicUsize::new(0)));
        let work = {
            let (go, running, most, done) = (go.clone(), running.clone(), most.clone(), done.clone());
            move || {
                let (go, running, most, done) = (go.clone(), running.clone(), most.clone(), done.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    go.acquire().await.unwrap().forget();
                    running.fetch_sub(1, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let others = async || {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        };
        runtime.block_on(async {
            tokio::spawn(one_at_a_time(Arc::clone(&asked), work));
            asked.notify_one();
            others().await;
            for _ in 0..5 {
                asked.notify_one();
                others().await;
            }
            go.add_permits(9);
            others().await;
        });
        assert_eq!((most.load(Ordering::Relaxed), done.load(Ordering::Relaxed)), (1, 2));
    }
}
