//! Builds an environment: creates it, installs the requirements and the runner, and compiles the modules.

use std::path::Path;

use tokio::process::Command;
use tokio::task::spawn_blocking;

use super::builds::Room;
use super::bytecode::{Bytecode, Fresh};
use super::interpreter::Interpreter;
use super::seal::Seal;
use super::store::Partial;
use super::{BUILD_LIMIT, Error, Inner, Phase, Wanted, graft, seal, store};
use crate::uv::Install;

/// A built environment that is not published yet.
pub(super) struct Built {
    pub(super) partial: Partial,
    pub(super) bytecode: Bytecode,
    pub(super) fresh: Fresh,
    pub(super) room: Option<Room>,
}

impl Inner {
    pub(super) async fn build(
        &self,
        wanted: &Wanted<'_>,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Built, Error> {
        let Wanted { requirements, interpreter, ours, plan, hash } = wanted;
        let room = match ours {
            Some(_) => self.builds.room(self.store.builds(), plan, BUILD_LIMIT).await?,
            // The runner is trusted code.
            None => None,
        };
        let partial = self.store.partial(hash, room.as_ref().map(|room| room.folder.as_path()))?;
        let venv = partial.environment();
        progress(Phase::CreatingVenv);
        self.uv.venv(&interpreter.program, &venv).await?;
        let bytecode = self.bytecode.of(&plan.scope);
        let fresh = match ours {
            None => {
                progress(Phase::InstallingRunner);
                self.uv.install(&venv, self.runner_wheel.as_argument()).await?;
                self.compile(&bytecode, interpreter, &partial, None, progress).await?
            }
            Some(ours) => {
                let seal = Seal::of(&venv).map_err(Error::io("inspect the empty environment"))?;
                progress(Phase::Installing { packages: packages(requirements) });
                self.install(wanted, &partial, room.as_ref()).await?;
                let settled = room.as_ref().map_or(Ok(()), Room::settle);
                settled.map_err(Error::io("stop the processes that installed the requirements"))?;
                checked(seal, &venv).await?;
                let fresh = self.compile(&bytecode, interpreter, &partial, room.as_ref(), progress).await?;
                progress(Phase::InstallingRunner);
                let (is_given, bare) = (room.as_ref().is_some_and(|room| room.owner().is_some()), ours.folder.clone());
                let grafted = spawn_blocking(move || {
                    if is_given {
                        seal::take(&venv)?;
                    }
                    graft::graft(&bare, &venv)
                });
                grafted.await.unwrap_or_else(|error| Err(error.into())).map_err(Error::io("install the runner"))?;
                fresh
            }
        };
        progress(Phase::Publishing);
        Ok(Built { partial, bytecode, fresh, room })
    }

    /// Installs the requirements as the builder of this room.
    async fn install(&self, wanted: &Wanted<'_>, partial: &Partial, room: Option<&Room>) -> Result<(), Error> {
        let Wanted { requirements, interpreter, plan, .. } = wanted;
        let lock = partial.list("requirements.txt");
        store::write_list(&lock, requirements).await.map_err(Error::io("write the requirements"))?;
        let uv = match room {
            Some(room) => {
                room.give(partial).map_err(Error::io("change the owner of the environment"))?;
                room.uv(&self.uv, partial, interpreter, plan.wheels_only)
                    .map_err(Error::io("start uv in the sandbox"))?
            }
            None => self.uv.plain(),
        };
        let (venv, require_hashes) = (&partial.environment(), requirements.contains("--hash="));
        self.uv.sync(uv, Install { venv, lock: &lock, require_hashes, wheels_only: plan.wheels_only }).await
    }

    async fn compile(
        &self,
        bytecode: &Bytecode,
        interpreter: &Interpreter,
        partial: &Partial,
        room: Option<&Room>,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Fresh, Error> {
        progress(Phase::Compiling);
        let python = match room {
            Some(room) => room.python(partial, interpreter).map_err(Error::io("start the compiler in the sandbox"))?,
            None => Command::new(&interpreter.program),
        };
        let (tag, owner) = (&interpreter.cache_tag, room.and_then(Room::owner));
        bytecode.fill(tag, &partial.environment(), (python, owner), &partial.list("modules")).await
    }
}

async fn checked(seal: Seal, venv: &Path) -> Result<(), Error> {
    let venv = venv.to_owned();
    let checked = spawn_blocking(move || seal.check(&venv));
    checked.await.unwrap_or_else(|error| Err(Error::io("inspect the installed files")(error.into())))
}

/// Number of requirements in a rendered lock: hashes are on indented lines, options start with a dash.
fn packages(lock: &str) -> usize {
    lock.lines().filter(|line| !line.starts_with([' ', '\t', '-'])).count()
}
