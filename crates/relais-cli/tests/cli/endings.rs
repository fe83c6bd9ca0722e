//! A program that is asked to end under load, and one that runs out of file handles.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use crate::{
    PATIENCE, settings,
    support::{Site, Target},
};

/// Messages that are answered before each stop of the program.
const ANSWERED: usize = 150;
/// Number of stops.
const ENDS: usize = 3;

/// Posts one order; its status, or `None` if there was no answer.
fn try_post(address: SocketAddr, order: &str) -> Option<u16> {
    let body = format!("{{\"type\":\"OrderPlaced\",\"orderId\":\"{order}\"}}");
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = format!(
        "POST /hook HTTP/1.1\r\nhost: x\r\nmessage-id: {order}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Sends orders until the program does not answer; orders without an answer are sent again the next time.
fn send_all(address: SocketAddr, next: &AtomicUsize, again: &mut Vec<String>, over: &AtomicBool) {
    while !over.load(SeqCst) {
        let order = again.pop().unwrap_or_else(|| format!("o-{}", next.fetch_add(1, SeqCst)));
        match try_post(address, &order) {
            Some(200 | 202) => {}
            Some(503) | None => return again.push(order),
            Some(other) => panic!("{order} is answered {other}"),
        }
    }
}

#[test]
fn a_program_that_ends_under_load_loses_nothing_and_repeats_nothing() {
    let target = Target::start();
    let site = Site::with(&settings("sqlite:relais.db", &target));
    let mut arrived = BTreeMap::<String, usize>::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new(); 4];
    let next = Arc::new(AtomicUsize::new(0));
    let note = |arrived: &mut BTreeMap<_, _>, body: String| {
        *arrived.entry(body).or_default() += 1;
    };
    for _ in 0..ENDS {
        let running = site.run();
        let address = running.address("hook");
        let over = Arc::new(AtomicBool::new(false));
        let senders: Vec<_> = open
            .drain(..)
            .map(|mut again| {
                let (next, over) = (Arc::clone(&next), Arc::clone(&over));
                std::thread::spawn(move || {
                    send_all(address, &next, &mut again, &over);
                    again
                })
            })
            .collect();
        for _ in 0..ANSWERED {
            note(&mut arrived, target.next().body);
        }
        let said = running.stop();
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(!said.err.contains("not settled at stop"), "{}", said.err);
        over.store(true, SeqCst);
        open = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    }
    // Orders without an answer are sent once more, then all of them must be stored.
    let running = site.run();
    for order in open.concat() {
        assert!(matches!(try_post(running.address("hook"), &order), Some(200 | 202)), "{order}");
    }
    let sent = next.load(SeqCst);
    while arrived.len() < sent {
        note(&mut arrived, target.next().body);
    }
    running.stop();
    assert_eq!(target.unseen(), 0, "nothing comes twice");
    let twice: Vec<_> = arrived.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty() && arrived.len() == sent, "of {sent}: {twice:?}");
}

#[test]
fn a_program_out_of_file_handles_takes_messages_again_when_there_are_some() {
    let limit = |pid: u32, files: usize| {
        let (files, pid) = (format!("--nofile={files}:"), pid.to_string());
        Command::new("prlimit").args([&files, "--pid", &pid]).status().is_ok_and(|s| s.success())
    };
    let target = Target::start();
    let site = Site::with(&settings("sqlite:relais.db", &target));
    let running = site.run();
    let address = running.address("hook");
    assert_eq!(try_post(address, "before"), Some(202));
    target.next();
    let open = || fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap().count();
    let most = open() + 4;
    if !limit(running.pid(), most) {
        eprintln!("NOT TESTED: no file handles left; there is no prlimit");
        return;
    }
    let held: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let waiting = std::thread::spawn(move || try_post(address, "behind"));
    let started = Instant::now();
    while open() < most {
        assert!(started.elapsed() < PATIENCE, "it never ran out");
    }
    // The request behind all these waits until some of them end.
    drop(held);
    assert_eq!(waiting.join().unwrap(), Some(202));
    assert!(target.next().body.contains("behind"));
    let said = running.stop();
    assert_eq!(said.code, 0, "{}", said.err);
}
