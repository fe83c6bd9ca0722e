//! Checks whether a file can keep the promises of relais; each refusal names the next step.

use std::path::{Path, PathBuf};

use relais_core::store::{Changes, IdRange, OutboxArrival, OutboxWork, StoreError, WorkQuery};
use rusqlite::Connection;

use super::{
    connect::{ConnectionSettings, SqliteOptions},
    error, migrate,
    outbox_position::{OutboxObstacles, OutboxPositions},
    row::{all, first, json_array, limit},
    writer::Writer,
};
use crate::migration::{self, Script};

/// The first library without the bug that can destroy a database when its log restarts.
const LIBRARY_MIN: i32 = 3_051_003;
/// `PRAGMA synchronous` as a number: every commit reaches the disk.
const SYNCHRONOUS_FULL: i64 = 2;
/// The list of mounts on Linux.
const MOUNTS: &str = "/proc/self/mountinfo";
/// File systems of another machine: their locks and shared memory do not reach across machines.
const NETWORK: [&str; 20] = [
    "nfs",
    "nfs4",
    "cifs",
    "smbfs",
    "smb2",
    "smb3",
    "9p",
    "afs",
    "ceph",
    "coda",
    "ncpfs",
    "lustre",
    "glusterfs",
    "beegfs",
    "gfs2",
    "ocfs2",
    "davfs",
    "vboxsf",
    "prl_fs",
    "drvfs",
];
/// The same, behind a user-space driver: `fuse.sshfs`.
const NETWORK_FUSE: [&str; 9] =
    ["sshfs", "glusterfs", "s3fs", "rclone", "davfs2", "ceph", "gcsfuse", "blobfuse2", "juicefs"];

/// Refuses everything below, and changes nothing.
pub(super) async fn check(
    writer: &Writer,
    path: PathBuf,
    options: SqliteOptions,
    scripts: &'static [Script],
) -> Result<(), StoreError> {
    file_system(&path)?;
    // Being run at all proves that the file and its directory can be written to.
    writer
        .run(move |tx| {
            settings(&ConnectionSettings::read(tx)?, options.unsafe_durability)?;
            let applied = migrate::applied(tx)?;
            migration::check(scripts, &applied, "the database file", migration::MIGRATE)
        })
        .await
}

/// Refuses a library or a setting that can lose what was committed.
pub(super) fn settings(
    found: &ConnectionSettings,
    unsafe_durability: bool,
) -> Result<(), StoreError> {
    if found.library < LIBRARY_MIN {
        return refuse(format!(
            "sqlite {} can destroy a database in WAL mode; build with sqlite 3.51.3 or newer \
             (the feature `bundled` of rusqlite brings one)",
            version_text(found.library)
        ));
    }
    if found.read_only {
        return refuse("the database file is read-only; give this user the right to write to it");
    }
    if !found.journal_mode.eq_ignore_ascii_case("wal") {
        return refuse(format!(
            "journal mode is `{}` and could not be set to WAL; use a file (not `:memory:`) on a \
             local disk, and close programs that hold it in another mode",
            found.journal_mode
        ));
    }
    if found.synchronous < SYNCHRONOUS_FULL && !unsafe_durability {
        return refuse(format!(
            "synchronous is {} so a power cut can lose commits; set it to FULL, or allow it with \
             `unsafe_durability`",
            found.synchronous
        ));
    }
    if !found.foreign_keys {
        return refuse("foreign keys are off; build sqlite without SQLITE_OMIT_FOREIGN_KEY");
    }
    Ok(())
}

fn file_system(path: &Path) -> Result<(), StoreError> {
    // Other systems have no such list; there the file system is the user's care.
    let Ok(mounts) = std::fs::read_to_string(MOUNTS) else { return Ok(()) };
    let Ok(path) = path.canonicalize() else { return Ok(()) };
    match file_system_of(&mounts, &path) {
        Some(kind) if is_network(kind) => refuse(format!(
            "the database lies on a network file system ({kind}), where sqlite's locks do not hold; \
             move it to a local disk, or use postgres"
        )),
        _ => Ok(()),
    }
}

/// The type of the file system that holds `path`: that of the longest mount point above it, and of
/// the last one mounted there.
fn file_system_of<'a>(mountinfo: &'a str, path: &Path) -> Option<&'a str> {
    let mut found: Option<(usize, &str)> = None;
    for line in mountinfo.lines() {
        let Some((mount, kind)) = mount_of(line) else { continue };
        let depth = mount.as_os_str().len();
        if path.starts_with(&mount) && found.is_none_or(|(longest, _)| depth >= longest) {
            found = Some((depth, kind));
        }
    }
    found.map(|(_, kind)| kind)
}

/// Mount point and type in a line of `mountinfo`: the fifth field, and the first after ` - `.
fn mount_of(line: &str) -> Option<(PathBuf, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mount = before.split(' ').nth(4)?;
    let kind = after.split(' ').next()?;
    Some((PathBuf::from(mount.replace("\\040", " ").replace("\\011", "\t")), kind))
}

fn is_network(kind: &str) -> bool {
    match kind.split_once('.') {
        Some(("fuse" | "fuseblk", driver)) => NETWORK_FUSE.contains(&driver),
        _ => NETWORK.contains(&kind),
    }
}

fn version_text(number: i32) -> String {
    format!("{}.{}.{}", number / 1_000_000, number / 1_000 % 1_000, number % 1_000)
}

fn refuse<T>(why: impl Into<String>) -> Result<T, StoreError> {
    Err(StoreError::setup(why))
}

/// Returns numbers that move when rows may have come, or workers came or left.
pub(super) fn changes(db: &Connection) -> Result<Changes, StoreError> {
    let changes = first(db, include_str!("sql/changes.sql"), [], |c| Changes {
        rows: u64::try_from(c.integer(0)).unwrap_or_default(),
        decisions: u64::try_from(c.integer(1)).unwrap_or_default(),
        outbox: c.integer(2),
        workers: u64::try_from(c.integer(3)).unwrap_or_default(),
        handed_over: u64::try_from(c.integer(4)).unwrap_or_default(),
    })?;
    Ok(changes.unwrap_or_default())
}

/// Finds the visible outbox rows of new ids, and destinations that may have due rows.
pub(super) fn find_work(
    db: &Connection,
    positions: &OutboxPositions,
    query: &WorkQuery,
) -> Result<OutboxWork, StoreError> {
    // It only reads; dropped, it ends.
    let db = &db.unchecked_transaction().map_err(|e| error::store(&e))?;
    let WorkQuery { new_ids, rows_max, destinations } = query;
    let mut work = OutboxWork::default();
    for IdRange { first, last } in new_ids {
        let params = (first, last, limit(*rows_max));
        let arrivals = all(db, include_str!("sql/arrivals.sql"), params, |c| OutboxArrival {
            id: c.integer(0),
            destination: c.text(1),
        })?;
        work.arrivals.extend(arrivals);
    }
    if !destinations.is_empty() {
        let sql = include_str!("sql/destinations_with_work.sql");
        work.destinations = all(db, sql, [json_array(destinations)], |c| c.string(0))?;
    }
    for destination in destinations {
        let state = OutboxObstacles::read(db, destination)?;
        if positions.advance(db, destination, state)? && !work.destinations.contains(destination) {
            work.destinations.push(destination.clone());
        }
    }
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ConnectionSettings {
        ConnectionSettings {
            library: LIBRARY_MIN,
            journal_mode: "wal".into(),
            synchronous: SYNCHRONOUS_FULL,
            foreign_keys: true,
            read_only: false,
        }
    }

    fn refusal(found: &ConnectionSettings) -> String {
        settings(found, false).unwrap_err().to_string()
    }

    #[test]
    fn each_unsafe_setting_is_refused_with_what_to_do() {
        assert!(settings(&good(), false).is_ok());
        assert!(
            refusal(&ConnectionSettings { library: 3_051_002, ..good() })
                .starts_with("sqlite 3.51.2 can")
        );
        assert!(
            refusal(&ConnectionSettings { journal_mode: "delete".into(), ..good() })
                .contains("WAL")
        );
        assert!(
            refusal(&ConnectionSettings { read_only: true, ..good() }).contains("right to write")
        );
        assert!(
            refusal(&ConnectionSettings { foreign_keys: false, ..good() }).contains("foreign keys")
        );
    }

    #[test]
    fn relaxed_synchronous_needs_the_users_word() {
        for synchronous in [0, 1] {
            let relaxed = ConnectionSettings { synchronous, ..good() };
            assert!(refusal(&relaxed).contains("unsafe_durability"));
            assert!(settings(&relaxed, true).is_ok());
        }
        assert!(settings(&ConnectionSettings { synchronous: 3, ..good() }, false).is_ok());
    }

    #[test]
    fn the_deepest_and_latest_mount_decides() {
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 27 0:40 / /srv rw shared:1 - nfs4 host:/srv rw\n\
                      31 30 0:41 / /srv/local\\040disk rw - xfs /dev/vdb rw\n\
                      32 27 0:42 / /mnt rw - ext4 /dev/vdc rw\n\
                      33 32 0:43 / /mnt rw - fuse.sshfs host: rw\n\
                      broken line\n";
        let kind = |path: &str| file_system_of(mounts, Path::new(path)).unwrap();
        assert_eq!(kind("/var/relais.db"), "ext4");
        assert_eq!(kind("/srv/relais.db"), "nfs4");
        assert_eq!(kind("/srv2/relais.db"), "ext4");
        assert_eq!(kind("/srv/local disk/relais.db"), "xfs");
        assert_eq!(kind("/mnt/relais.db"), "fuse.sshfs");
        assert!(is_network("nfs4") && is_network("fuse.sshfs") && is_network("9p"));
        assert!(!is_network("ext4") && !is_network("overlay") && !is_network("fuse.ntfs-3g"));
    }
}
