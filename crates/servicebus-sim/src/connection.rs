//! One connection of a client: frames in, answers out.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use fe2o3_amqp_types::{
    definitions::SequenceNo,
    performatives::{Close, Detach, End, Flow, Performative},
};
use tokio::{
    io::{AsyncWriteExt, BufReader, BufWriter},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
};

use crate::{
    link::{LinkPurpose, SimLink, SimSession, WaitingAttach},
    locked,
    namespace::Namespace,
    reply,
    wire::{self, WireFrame},
};

/// The pause between checks for expired locks, scheduled messages and free sessions.
const TICK: Duration = Duration::from_millis(10);
/// Ticks between frames that keep the connection alive.
const ALIVE_TICKS: u32 = 500;

/// Serves a client until it closes, fails, or all connections are cut.
pub(crate) async fn serve(
    mut stream: TcpStream,
    namespace: Arc<Mutex<Namespace>>,
    mut cuts: watch::Receiver<u64>,
) {
    cuts.mark_unchanged();
    if wire::handshake(&mut stream).await.is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let mut connection = SimConnection {
        writer: BufWriter::new(writer),
        namespace,
        sessions: HashMap::new(),
        waiting: Vec::new(),
        opened: HashMap::new(),
        frame_max: wire::FRAME_MAX as usize,
    };
    tokio::select! {
        _ = connection.run(reader) => {}
        _ = cuts.changed() => {}
    }
    connection.leave_all();
}

pub(crate) struct SimConnection {
    writer: BufWriter<OwnedWriteHalf>,
    pub(crate) namespace: Arc<Mutex<Namespace>>,
    pub(crate) sessions: HashMap<u16, SimSession>,
    pub(crate) waiting: Vec<WaitingAttach>,
    /// Paths that tokens have opened, and their ends.
    pub(crate) opened: HashMap<String, SystemTime>,
    pub(crate) frame_max: usize,
}

impl SimConnection {
    async fn run(&mut self, reader: OwnedReadHalf) -> io::Result<()> {
        // Reading a frame must not be cancelled: a task does it.
        let (sender, mut frames) = mpsc::channel::<WireFrame>(64);
        let mut reader = BufReader::new(reader);
        let reading = tokio::spawn(async move {
            while let Ok(frame) = wire::read_frame(&mut reader).await {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        });
        let mut ticks = 0_u32;
        let served = loop {
            tokio::select! {
                frame = frames.recv() => match frame {
                    Some(frame) => match self.on_frame(frame).await {
                        Ok(true) => {}
                        other => break other.map(drop),
                    },
                    None => break Ok(()),
                },
                () = tokio::time::sleep(TICK) => ticks += 1,
            }
            if let Err(error) = self.work(ticks).await {
                break Err(error);
            }
        };
        reading.abort();
        served
    }

    async fn work(&mut self, ticks: u32) -> io::Result<()> {
        locked(&self.namespace).tick(SystemTime::now());
        self.end_expired().await?;
        self.attach_waiting().await?;
        self.deliver().await?;
        if ticks % ALIVE_TICKS == ALIVE_TICKS - 1 {
            wire::write_frame(&mut self.writer, 0, &[]).await?;
        }
        self.writer.flush().await
    }

    pub(crate) async fn send(&mut self, channel: u16, body: &[u8]) -> io::Result<()> {
        wire::write_frame(&mut self.writer, channel, body).await
    }

    /// Returns whether the connection continues.
    async fn on_frame(&mut self, frame: WireFrame) -> io::Result<bool> {
        let channel = frame.channel;
        match frame.performative {
            None => {}
            Some(Performative::Open(open)) => {
                self.frame_max = self.frame_max.min(open.max_frame_size.0 as usize);
                self.send(channel, &wire::encode(&reply::open())?).await?;
            }
            Some(Performative::Begin(begin)) => {
                let session = SimSession {
                    next_incoming_id: begin.next_outgoing_id,
                    ..SimSession::default()
                };
                self.sessions.insert(channel, session);
                self.send(channel, &wire::encode(&reply::begin(channel))?).await?;
            }
            Some(Performative::Attach(attach)) => self.on_attach(channel, attach).await?,
            Some(Performative::Flow(flow)) => self.on_flow(channel, &flow).await?,
            Some(Performative::Transfer(transfer)) => {
                self.on_transfer(channel, transfer, frame.payload).await?;
            }
            Some(Performative::Disposition(disposition)) => {
                self.on_disposition(channel, &disposition).await?;
            }
            Some(Performative::Detach(detach)) => self.on_detach(channel, &detach).await?,
            Some(Performative::End(_)) => {
                self.leave_session(channel);
                self.send(channel, &wire::encode(&End { error: None })?).await?;
            }
            Some(Performative::Close(_)) => {
                self.leave_all();
                self.send(channel, &wire::encode(&Close { error: None })?).await?;
                self.writer.flush().await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn on_flow(&mut self, channel: u16, flow: &Flow) -> io::Result<()> {
        let (Some(handle), Some(session)) = (&flow.handle, self.sessions.get_mut(&channel)) else {
            return Ok(());
        };
        let handle = handle.0;
        let Some(link) = session.links.get_mut(&handle) else { return Ok(()) };
        let sends =
            matches!(link.purpose, LinkPurpose::Sends { .. } | LinkPurpose::ClaimResponses { .. });
        if let (true, Some(credit)) = (sends, flow.link_credit) {
            let seen: SequenceNo = flow.delivery_count.unwrap_or_default();
            link.credit = seen.wrapping_add(credit).wrapping_sub(link.delivery_count);
            link.is_draining = flow.drain;
        }
        if flow.echo {
            let (count, credit) = (link.delivery_count, link.credit);
            let answer = reply::flow(session, handle, count, credit);
            self.send(channel, &wire::encode(&answer)?).await?;
        }
        Ok(())
    }

    async fn on_detach(&mut self, channel: u16, detach: &Detach) -> io::Result<()> {
        let handle = detach.handle.0;
        self.waiting.retain(|one| (one.channel, one.attach.handle.0) != (channel, handle));
        let session = self.sessions.get_mut(&channel);
        let Some(link) = session.and_then(|session| session.links.remove(&handle)) else {
            // The answer to a detach of ours.
            return Ok(());
        };
        self.leave(&link);
        let answer = Detach { closed: detach.closed, ..reply::detach(handle, None) };
        self.send(channel, &wire::encode(&answer)?).await
    }

    /// Detaches links whose token has expired.
    async fn end_expired(&mut self) -> io::Result<()> {
        let mut expired = Vec::new();
        for (channel, session) in &self.sessions {
            for (handle, link) in &session.links {
                if link.purpose.address().is_some_and(|address| !self.is_open(address)) {
                    expired.push((*channel, *handle));
                }
            }
        }
        for (channel, handle) in expired {
            let session = self.sessions.get_mut(&channel);
            if let Some(link) = session.and_then(|session| session.links.remove(&handle)) {
                self.leave(&link);
            }
            let error =
                ("amqp:unauthorized-access", "ExpiredToken: the token is expired".to_owned());
            self.send(channel, &wire::encode(&reply::detach(handle, Some(error)))?).await?;
        }
        Ok(())
    }

    fn leave(&self, link: &SimLink) {
        if let LinkPurpose::Sends { address, .. } = &link.purpose {
            locked(&self.namespace).leave(address, link.number);
        }
    }

    fn leave_session(&mut self, channel: u16) {
        self.waiting.retain(|one| one.channel != channel);
        for link in self.sessions.remove(&channel).unwrap_or_default().links.into_values() {
            self.leave(&link);
        }
    }

    fn leave_all(&mut self) {
        let channels: Vec<u16> = self.sessions.keys().copied().collect();
        channels.into_iter().for_each(|channel| self.leave_session(channel));
    }
}
