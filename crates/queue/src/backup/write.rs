//! Writes entries: commands that set the content of a key, regardless of its previous content.

use redis::Pipeline;

use super::entry::{Bytes, Content, Entry};

/// Number of members per command.
const MEMBERS_AT_ONCE: usize = 1_000;

/// Adds the commands that write this entry as `key`. The first entry of a key deletes the old content, so that a backup
/// can be written twice.
pub(super) fn write(pipe: &mut Pipeline, key: &[u8], entry: &Entry) {
    if !entry.is_more {
        pipe.cmd("DEL").arg(key).ignore();
    }
    match &entry.content {
        Content::String(value) => {
            pipe.cmd("SET").arg(key).arg(value).ignore();
        }
        Content::Hash(fields) => {
            for fields in fields.chunks(MEMBERS_AT_ONCE) {
                let hset = pipe.cmd("HSET").arg(key);
                for (field, value) in fields {
                    hset.arg(field).arg(value);
                }
                hset.ignore();
            }
        }
        Content::List(members) => extend(pipe, "RPUSH", key, members),
        Content::Set(members) => extend(pipe, "SADD", key, members),
        Content::SortedSet(members) => {
            for members in members.chunks(MEMBERS_AT_ONCE) {
                let add = pipe.cmd("ZADD").arg(key);
                for (member, score) in members {
                    add.arg(score).arg(member);
                }
                add.ignore();
            }
        }
        Content::Stream { entries, last } => {
            for (id, fields) in entries {
                let add = pipe.cmd("XADD").arg(key).arg(id);
                for field in fields {
                    add.arg(field);
                }
                add.ignore();
            }
            // Later entries get ids above all previous ones.
            if entries.last().is_none_or(|(id, _)| id != last) {
                pipe.cmd("XSETID").arg(key).arg(last).ignore();
            }
        }
    }
    if let Some(expires_ms) = entry.expires_ms {
        pipe.cmd("PEXPIREAT").arg(key).arg(expires_ms).ignore();
    }
}

fn extend(pipe: &mut Pipeline, command: &str, key: &[u8], members: &[Bytes]) {
    for members in members.chunks(MEMBERS_AT_ONCE) {
        pipe.cmd(command).arg(key).arg(members).ignore();
    }
}
