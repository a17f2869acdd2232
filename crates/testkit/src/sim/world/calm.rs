//! The end of the storm.

use super::{CALM, Kindred, Machine, What, Which, World};
use crate::sim::schedule::Action;

impl World<'_> {
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.net = CALM;
        let now_ns = self.now_ns;
        let rates: Vec<[i32; 3]> = self.schedule.setup.nodes.clone();
        for (at, ppm) in rates.iter().enumerate() {
            let ppm = if self.schedule.setup.kindred == Kindred::Local { [0; 3] } else { *ppm };
            self.change_clocks(at, |machine| settle(machine, now_ns, ppm, true));
        }
        let stepped = self.schedule.steps.iter().any(|step| matches!(step.action, Action::StepServer(..)));
        for server in &mut self.servers {
            settle(&mut server.machine, now_ns, [0; 3], stepped);
        }
        if self.split.is_some() {
            self.split = Some(u8::MAX);
        }
        for at in 0..self.hosts.len() {
            self.hosts[at].trap = None;
            if self.hosts[at].node.is_none() {
                self.start(at);
            }
            self.hosts[at].paused_until_ns = 0;
            self.resume(at);
        }
        self.note_all(What::Calm);
    }
}

/// Time synchronisation has done its work.
fn settle(machine: &mut Machine, now_ns: u64, ppm: [i32; 3], steps: bool) {
    for (which, ppm) in [Which::Boot, Which::Raw, Which::Real].into_iter().zip(ppm) {
        machine.set_rate(now_ns, which, ppm.clamp(-4_000, 4_000));
    }
    if steps {
        machine.step_wall(now_ns, -machine.wall_error(now_ns));
    }
}
