//! The execution of commands.

use super::Driver;
use crate::session::command::Command;

impl Driver {
    pub(super) fn command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Touched(id) => self.serve_local(id),
            Command::Open(opening) => self.open(opening),
            // The stream may have ended meanwhile.
            Command::Hint(id, hints) => drop(self.engine.set_hints(id, hints)),
            Command::Classify(id, class) => drop(self.engine.set_class(id, class, now)),
            Command::Cancelled => self.cancel_opens(),
            Command::Accept(id) => {
                // The peer may have reset it meanwhile.
                let _ = self.engine.accept(id, now);
            }
            Command::Refuse(id, error) => {
                self.locals.remove(&id);
                self.engine.reset(id, error.code(), now);
            }
            Command::Add(carrier) => self.add(*carrier),
            Command::AddDatagrams(carrier) => self.add_datagrams(*carrier),
            Command::RemoveDatagrams(link, reason) => self.remove_datagrams(&link, &reason),
            Command::NoDatagrams(link, reason) => self.note_no_datagrams(link, reason),
            Command::Terms(id, terms) => self.apply_terms(id, *terms),
            Command::Remove(id, reason) => {
                if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
                    self.end_carrier(index, &reason);
                }
            }
            Command::Status(reply) => {
                let _ = reply.send(self.status());
            }
            Command::Look(reply) => {
                let _ = reply.send(self.look());
            }
            Command::Close(reason) => self.engine.close(0, &reason, now),
        }
    }
}
