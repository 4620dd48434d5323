//! The protocol over lines of standard input and output.
//!
//! The transport of `rmcp` drops lines that are not JSON and lines that are too long. JSON-RPC has an answer to them.

use std::{io, sync::Arc};

use rmcp::{
    RoleServer,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use serde::Serialize;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Mutex, mpsc},
};

use super::message::{checked, invalid};

/// The messages that wait for the server.
const WAITING: usize = 64;
/// The mark with which some programs begin a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A transport that reads a message from each line, and answers those that are none.
pub(super) struct Lines<W> {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    output: Arc<Mutex<W>>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Lines<W> {
    /// Reads lines of at most `most` bytes, on a task of its own.
    pub(super) fn new(input: impl AsyncBufRead + Send + Unpin + 'static, output: W, most: usize) -> Self {
        let (sender, messages) = mpsc::channel(WAITING);
        let output = Arc::new(Mutex::new(output));
        let own = Arc::clone(&output);
        tokio::spawn(async move {
            if let Err(error) = read(input, &own, most, &sender).await {
                tracing::error!("standard input or output failed: {error}");
            }
        });
        Self { messages, output }
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for Lines<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move { write(&output, &message).await }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await
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
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (found, written) = runtime.block_on(async {
            let (output, mut written) = duplex(1 << 16);
            let input = std::io::Cursor::new(text.into_bytes());
            let mut lines = Lines::new(BufReader::with_capacity(16, input), output, 100);
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
}
