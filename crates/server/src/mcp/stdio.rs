//! The protocol over lines of standard input and output.
//!
//! The transport of `rmcp` drops lines that are not JSON and lines that are too long. JSON-RPC has an answer to them.

use std::{
    collections::HashSet,
    io,
    sync::{self, Arc, PoisonError},
    time::Duration,
};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::Transport,
};
use serde::Serialize;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Mutex, Notify, mpsc},
    time::{Instant, timeout_at},
};

use super::message::{checked, invalid};

/// The messages that wait for the server.
const WAITING: usize = 64;
/// The mark with which some programs begin a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A transport that reads a message from each line, and answers those that are none. It ends after the input: `rmcp` gives running
/// calls 5 s from the transport's end, so it ends when they are answered.
pub(super) struct Lines<W> {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    output: Arc<Mutex<W>>,
    open: Arc<Open>,
    /// The longest time from the end of the input to that of the transport.
    longest: Duration,
    /// The latest end of the transport, once the input has ended.
    end: Option<Instant>,
}

/// The requests that are not answered yet.
#[derive(Default)]
struct Open {
    requests: sync::Mutex<HashSet<RequestId>>,
    changed: Notify,
}

impl Open {
    fn requests(&self) -> sync::MutexGuard<'_, HashSet<RequestId>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message of the client: a request, or that one is cancelled and has no answer.
    fn came(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.requests().insert(request.id.clone());
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.over(id);
                }
            }
            _ => {}
        }
    }

    fn over(&self, id: &RequestId) {
        self.requests().remove(id);
        self.changed.notify_one();
    }

    /// Waits until all requests are answered, or until `end`.
    async fn all_over(&self, end: Instant) {
        while !self.requests().is_empty() {
            if timeout_at(end, self.changed.notified()).await.is_err() {
                return;
            }
        }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Lines<W> {
    /// Reads lines of at most `most` bytes, on a task of its own. After the input, running calls have the time `longest`.
    pub(super) fn new(
        input: impl AsyncBufRead + Send + Unpin + 'static,
        output: W,
        most: usize,
        longest: Duration,
    ) -> Self {
        let (sender, messages) = mpsc::channel(WAITING);
        let output = Arc::new(Mutex::new(output));
        let own = Arc::clone(&output);
        tokio::spawn(async move {
            if let Err(error) = read(input, &own, most, &sender).await {
                tracing::error!("standard input or output failed: {error}");
            }
        });
        Self { messages, output, open: Arc::default(), longest, end: None }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for Lines<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (output, open) = (Arc::clone(&self.output), Arc::clone(&self.open));
        async move {
            let written = write(&output, &message).await;
            let answered = match &message {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
            };
            if let Some(id) = answered {
                open.over(id);
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        if let Some(message) = self.messages.recv().await {
            self.open.came(&message);
            return Some(message);
        }
        // This is called again when another event came first.
        let end = *self.end.get_or_insert_with(|| Instant::now() + self.longest);
        self.open.all_over(end).await;
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.messages.close();
        Ok(())
    }
}

/// Passes on the messages of an input until it ends or nobody receives them.
async fn read<W: AsyncWrite + Unpin>(
    mut input: impl AsyncBufRead + Unpin,
    output: &Mutex<W>,
    most: usize,
    messages: &mpsc::Sender<ClientJsonRpcMessage>,
) -> io::Result<()> {
    let mut line = Vec::new();
    while let Some(is_whole) = next_line(&mut input, &mut line, most).await? {
        let text = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line).trim_ascii();
        let refused = match is_whole {
            false => Some(invalid(None, &format!("expected at most {most} bytes in a message"))),
            true if text.is_empty() => continue,
            true => checked(text).err(),
        };
        if let Some(error) = refused {
            write(output, &ServerJsonRpcMessage::Error(*error)).await?;
            continue;
        }
        match serde_json::from_slice::<ClientJsonRpcMessage>(text) {
            Ok(message) => {
                if messages.send(message).await.is_err() {
                    break;
                }
            }
            // Of the messages of JSON-RPC these are answers in a form that nobody asked for, and notifications that are not known.
            Err(error) => tracing::debug!("a message was left out: {error}"),
        }
    }
    Ok(())
}

/// Reads a line. Returns whether it has at most `most` bytes; the rest of a longer one is left out. `None` at the end.
async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<Option<bool>> {
    line.clear();
    let (mut is_whole, mut is_begun) = (true, false);
    loop {
        let found = input.fill_buf().await?;
        if found.is_empty() {
            return Ok(is_begun.then_some(is_whole));
        }
        is_begun = true;
        let end = found.iter().position(|byte| *byte == b'\n');
        let part = &found[..end.unwrap_or(found.len())];
        is_whole &= line.len() + part.len() <= most;
        if is_whole {
            line.extend_from_slice(part);
        }
        let read = end.map_or(found.len(), |end| end + 1);
        input.consume(read);
        if end.is_some() {
            return Ok(Some(is_whole));
        }
    }
}

/// Writes a message as a line.
async fn write<W: AsyncWrite + Unpin>(output: &Mutex<W>, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    output.write_all(&line).await?;
    output.flush().await
}

#[cfg(test)]
mod tests {
    use rmcp::model::JsonRpcMessage;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, BufReader, duplex};

    use super::*;

    #[test]
    fn lines_that_are_no_messages_are_answered_and_the_others_passed_on() {
        let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        let long = format!("\"{}\"", "x".repeat(200));
        let text = format!("hello\n\r\n\u{feff}{ping}\r\n[]\n{long}\n{{\"id\":4}}\n{ping}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (found, written) = runtime.block_on(async {
            let (output, mut written) = duplex(1 << 16);
            let input = std::io::Cursor::new(text.into_bytes());
            let mut lines = Lines::new(BufReader::with_capacity(16, input), output, 100, Duration::ZERO);
            let mut found = Vec::new();
            while let Some(message) = lines.receive().await {
                let JsonRpcMessage::Request(request) = message else { panic!("{message:?}") };
                found.push(request.id.to_string());
            }
            drop(lines);
            let mut text = String::new();
            written.read_to_string(&mut text).await.unwrap();
            (found, text)
        });
        // The last line needs no end.
        assert_eq!(found, ["7", "7"]);
        let answers: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let codes: Vec<i64> =
            answers.iter().map(|answer| answer["error"]["code"].as_i64().unwrap()).collect();
        assert_eq!(codes, [-32700, -32600, -32600, -32600]);
        assert_eq!((&answers[3]["id"], answers[0].get("id")), (&4.into(), None));
        assert_eq!(answers[2]["error"]["message"], "expected at most 100 bytes in a message");
    }

    #[test]
    fn the_transport_ends_when_the_requests_before_the_end_of_the_input_are_answered() {
        let request = |id: u32| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
        let cancelled =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#.to_owned();
        let text = request(1) + &request(2) + &cancelled;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            // The answer comes long before the limit, or not at all.
            for (delay, longest) in [(Some(Duration::from_millis(100)), 60), (None, 0)] {
                let input = std::io::Cursor::new(text.clone().into_bytes());
                let (output, _written) = duplex(1 << 16);
                let longest = Duration::from_secs(longest);
                let mut lines = Lines::new(BufReader::new(input), output, 1000, longest);
                for _ in 0..3 {
                    lines.receive().await.unwrap();
                }
                let began = Instant::now();
                if let Some(delay) = delay {
                    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
                    let sent = lines.send(serde_json::from_str(answer).unwrap());
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        sent.await.unwrap();
                    });
                }
                assert!(lines.receive().await.is_none());
                let waited = began.elapsed();
                assert!(
                    waited >= delay.unwrap_or_default() && waited < Duration::from_secs(60),
                    "{waited:?}"
                );
            }
        });
    }
}
