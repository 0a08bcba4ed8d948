//! A running operation: one pass of it on one screen, [`run`].
//!
//! The decisions are `argosy_sync`'s: a plan, and from what is seen the next step. A pass does steps until there is
//! something to wait for, and gives the worker back; the next pass goes on. Stages: [`begin`] reads the request, compares
//! and plans; [`apply`], [`prune`] and [`hooks`] write to the cluster; [`wait`] looks at it; [`terminate`] heeds the wish
//! to stop, [`supersede`] a newer revision; [`finish`] ends the operation or prepares the next attempt.
//!
//! An operation that somebody else has begun is taken over by a write that the API server refuses if the operation has gone on
//! since: a watch may be behind, and what it tells of as running may have been ended, and followed by another, long ago.
//!
//! What a pass remembers is in [`Memory`] and may be lost at any time: the operation's state in the Application, the note
//! of [`journal`] and the live objects say the same. Hooks carry the run that created them, so none is created twice.

mod apply;
mod begin;
mod desk;
mod finish;
mod hooks;
mod journal;
mod prune;
mod result;
mod supersede;
mod terminate;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use argosy_api::v1alpha1::Application;
use argosy_object::ContentHash;
use argosy_sync::{OperationPhase, Step, WaitOn, next};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::context::{Context, WriteError};
pub(crate) use apply::prepared;
use begin::{Refusal, Session};
use desk::Desk;

/// An operation that waits is looked at again after so long, even if nothing is heard of what it waits for.
const BACKSTOP: Duration = Duration::from_secs(30);
/// The same, if nothing would be heard of it: its kind is not followed.
const UNHEARD: Duration = Duration::from_secs(3);
/// After a write did not get through, or while the cluster is not ours, the pass is repeated after so long.
const AGAIN: Duration = Duration::from_secs(5);

/// What to do after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is over.
    Done,
    /// Another pass, at once.
    Again,
    /// Another pass when something of the Application changes, at the latest after this time.
    Wait {
        /// At the latest.
        at_most: Duration,
    },
}

/// What is kept between two passes of one operation.
#[derive(Default)]
pub(crate) struct Memory {
    session: Option<Session>,
    /// Under which epoch it was remembered.
    pub(crate) epoch: Option<u64>,
    /// This process has begun the operation or taken it over.
    ours: bool,
    /// Why the controller itself ends the operation, if it does.
    cause: Option<String>,
    /// What it goes to: identity of what was rendered.
    rendered: Option<ContentHash>,
}

/// The write did not happen because the cluster is not ours any longer: nothing is known about the object.
#[derive(Debug)]
struct Interrupted;

/// One pass of the operation of `app`.
pub(crate) async fn run(ctx: &Context, app: &Arc<Application>, memory: &mut Memory) -> Next {
    match pass(ctx, app, memory).await {
        Ok(next) => next,
        Err(WriteError::Gone { .. }) => Next::Done,
        Err(error) => {
            warn!(
                app = app.metadata.name,
                app_namespace = app.metadata.namespace,
                error = argosy_runtime::log::chain(&error),
                "write the state of the operation"
            );
            Next::Wait { at_most: AGAIN }
        }
    }
}

async fn pass(ctx: &Context, app: &Arc<Application>, memory: &mut Memory) -> Result<Next, WriteError> {
    let mut desk = Desk::open(ctx, app);
    if desk.is_new() {
        *memory = Memory {
            epoch: memory.epoch,
            ..Memory::default()
        };
        desk.save().await?;
    } else if !memory.ours {
        desk.adopt().await?;
    }
    memory.ours = true;
    if let Some(cause) = terminate::overdue(&desk) {
        memory.cause = Some(cause.to_owned());
        terminate::order(&mut desk, "operation is terminating due to timeout").await?;
    }
    match begin::next_attempt(&mut desk) {
        begin::Attempt::Running => {}
        begin::Attempt::Waits(left) => {
            let Some(newer) = supersede::newer(&desk, memory.rendered) else {
                return Ok(Next::Wait { at_most: left });
            };
            // One that waits for its next attempt has nothing running.
            desk.state.phase = argosy_api::v1alpha1::OperationPhase::Terminating.into();
            let message = format!(
                "{}. Superseded by revision {newer}",
                desk.state.message.trim_end_matches('.')
            );
            return finish::end(&mut desk, memory, OperationPhase::Failed, message).await;
        }
        begin::Attempt::Begins => {
            memory.session = None;
            desk.save().await?;
        }
        begin::Attempt::Never(message) => {
            return finish::end(&mut desk, memory, OperationPhase::Error, message).await;
        }
    }
    if let Some(pause) = begin::held_by_window(&mut desk) {
        desk.save().await?;
        return Ok(Next::Wait {
            at_most: pause.min(terminate::time_left(&desk)),
        });
    }
    if memory
        .session
        .as_ref()
        .is_none_or(|session| !session.is_of(&desk))
    {
        memory.session = match begin::session(&mut desk).await {
            Ok(session) => {
                memory.rendered = session.rendered;
                if let Some(note) = journal::note(&desk, &session.run, &session.plan) {
                    desk.save_with(Some(note)).await?;
                }
                Some(session)
            }
            Err(Refusal::Later(pause)) => {
                desk.save().await?;
                return Ok(Next::Wait { at_most: pause });
            }
            Err(Refusal::Ended { phase, message }) => {
                return finish::end(&mut desk, memory, phase, message).await;
            }
        };
    }
    walk(&mut desk, memory).await
}

/// Does steps until there is something to wait for.
async fn walk(desk: &mut Desk<'_>, memory: &mut Memory) -> Result<Next, WriteError> {
    loop {
        let Some(session) = &mut memory.session else {
            return Ok(Next::Again);
        };
        terminate::heed(desk, session);
        if let Some(left) = session.pause_left() {
            return Ok(Next::Wait { at_most: left });
        }
        let seen = wait::observe(desk, session).await;
        let step = next(&session.plan, &mut session.progress, &seen);
        desk.note(session.progress.results());
        debug!(app = desk.app.metadata.name, ?step, "step of the operation");
        if supersede::is_safe(&step, session)
            && let Some(newer) = supersede::newer(desk, memory.rendered)
        {
            memory.cause = Some(format!("newer revision {newer}"));
            terminate::order(desk, "operation is terminating: a newer revision supersedes it").await?;
            continue;
        }
        let done = match step {
            Step::DryRun(tasks) => {
                apply::check(session, &tasks);
                Ok(())
            }
            Step::Apply(tasks) => {
                desk.say("one or more tasks are running");
                desk.save_now_and_then().await?;
                apply::apply(session, &tasks).await
            }
            Step::Prune(tasks) => prune::prune(session, &tasks).await,
            Step::Release(tasks) => hooks::release(session, &tasks).await,
            Step::DeleteHooks(tasks) => hooks::delete(session, &tasks).await,
            Step::Pause { .. } => {
                session.pause = Some(Instant::now() + desk.ctx.options.sync_wave_delay);
                desk.save().await?;
                Ok(())
            }
            Step::Wait(wait) => {
                desk.say(&wait.message);
                desk.save().await?;
                if desk.asked_to_stop() && !session.terminating {
                    continue;
                }
                let followed = |on: &WaitOn| session.cluster().follows(&on.key.group_kind());
                let pause = if wait.on.iter().all(followed) {
                    BACKSTOP
                } else {
                    UNHEARD
                };
                return Ok(Next::Wait {
                    at_most: terminate::time_left(desk).min(pause),
                });
            }
            Step::Done { phase, message } => return finish::end(desk, memory, phase, message).await,
        };
        if let Err(Interrupted) = done {
            return Ok(Next::Wait { at_most: AGAIN });
        }
    }
}
