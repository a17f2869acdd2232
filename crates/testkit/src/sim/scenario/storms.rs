//! What each storm does to a schedule.

use super::{Draw, Storm};
use crate::sim::{
    client::Kindred,
    clock::Which,
    engine::Memory,
    schedule::{Action, Boundary, Way},
};

impl Draw {
    pub(super) fn storm(&mut self, storm: Storm) {
        let times = 1 + self.below(5);
        for _ in 0..times {
            match storm {
                Storm::Processes => self.disturb_process(),
                Storm::Network => self.disturb_network(),
                Storm::Clocks => self.disturb_clock(),
                Storm::FastClocks => {
                    let (at_ms, _) = self.moment(1);
                    let (node, which) = (self.node(), self.pick(&[Which::Boot, Which::Raw, Which::Real]));
                    let (ppm, server) = (self.ppm(90_000), self.server());
                    let engine = self.ppm(90_000);
                    self.push(at_ms, Action::Rate(node, which, ppm));
                    self.push(at_ms, Action::RateServer(server, engine));
                }
                Storm::Frozen => {
                    let (at_ms, ms) = self.moment(4_000);
                    let node = self.node();
                    self.push(at_ms, Action::Freeze(node, ms));
                }
                Storm::Restarts => self.restart(),
                Storm::EngineClock => {
                    let (at_ms, _) = self.moment(1);
                    let (server, by) = (self.server(), self.ppm(8_000));
                    self.push(at_ms, Action::StepServer(server, by));
                }
                Storm::Split => {
                    let (at_ms, ms) = self.moment(4_000);
                    self.snapshot_before(at_ms, 800, 0);
                    let nodes = u8::try_from(self.below(16)).unwrap_or(1);
                    self.push(at_ms, Action::Split(nodes, ms));
                }
                Storm::Leaders => {
                    let (at_ms, ms) = self.moment(1_500);
                    self.push(at_ms, Action::LeaderChange(0, ms));
                }
                Storm::Restore => {
                    let (at_ms, ms) = self.moment(500);
                    self.snapshot_before(at_ms, 3_000, 0);
                    self.push(at_ms, Action::Restart(0, ms, Memory::Stale));
                }
                Storm::Revocations | Storm::Force => {
                    let (at_ms, _) = self.moment(1);
                    let resource = u8::try_from(self.choices.below(u64::from(self.resources))).unwrap_or(0);
                    self.push(at_ms, Action::Revoke(resource, storm == Storm::Force));
                }
            }
        }
    }

    fn disturb_process(&mut self) {
        let boundary =
            self.pick(&[Boundary::Now, Boundary::BeforeWrite, Boundary::BeforeSend, Boundary::BeforeReply]);
        let node = self.node();
        let (at_ms, ms) = self.moment(3_500);
        // A trap snaps later than it is set: what it does must be over when the calm begins all the same.
        let ms = ms.min((self.calm_ms - at_ms) / 2 + 1);
        match self.below(4) {
            0 => self.push(at_ms, Action::Crash(node, boundary, ms.min(1_000))),
            1 => self.push(at_ms, Action::Cancel(node)),
            _ => self.push(at_ms, Action::Pause(node, boundary, ms)),
        }
    }

    fn disturb_network(&mut self) {
        let (at_ms, ms) = self.moment(4_000);
        let (node, server) = (self.node(), self.server());
        let way = self.pick(&[Way::There, Way::Back]);
        if self.kindred == Kindred::Local || self.choices.one_in(2) {
            self.push(at_ms, Action::Stall(node, server, way, ms));
        } else {
            self.push(at_ms, Action::Cut(node, server, way, ms));
        }
    }

    fn disturb_clock(&mut self) {
        let (at_ms, ms) = self.moment(3_000);
        let node = self.node();
        match self.below(3) {
            0 => self.push(at_ms, Action::Suspend(node, ms)),
            1 => {
                let by = self.ppm(20_000);
                self.push(at_ms, Action::StepWall(node, by));
            }
            _ => {
                let (which, ppm) = (self.pick(&[Which::Boot, Which::Raw, Which::Real]), self.ppm(4_990));
                self.push(at_ms, Action::Rate(node, which, ppm));
            }
        }
    }

    fn restart(&mut self) {
        let (at_ms, ms) = self.moment(1_000);
        let server = self.server();
        let memory = self.pick(&[Memory::Kept, Memory::Lost, Memory::Stale]);
        if memory == Memory::Stale {
            self.snapshot_before(at_ms, 1_500, server);
        }
        self.push(at_ms, Action::Restart(server, ms, memory));
    }
}
