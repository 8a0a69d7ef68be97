//! A session's configuration as the engine takes it.

use sumlink_engine::{Config, Role};

use super::SessionConfig;

/// The engine's configuration at this side.
pub(crate) fn engine_config(role: Role, config: &SessionConfig) -> Config {
    let mut engine = Config::new(role);
    engine.scheduler.clone_from(&config.scheduler);
    engine.class_schedulers.clone_from(&config.class_schedulers);
    engine.own_schedulers.clone_from(&config.own_schedulers);
    engine.memory = config.split().engine;
    engine.stream_memory = config.stream_memory.min(engine.memory);
    engine.max_streams = config.max_streams;
    engine.session_timeout = config.session_timeout;
    engine.redundancy = config.redundancy;
    engine.fbdt.clone_from(&config.fbdt);
    engine.selector.clone_from(&config.selector);
    engine.datagrams.clone_from(&config.datagrams);
    engine
}

#[cfg(test)]
mod tests {
    use sumlink_engine::scheduler::fbdt::Coupling;
    use sumlink_engine::{ConfigError, Redundancy};

    use super::*;

    #[test]
    fn the_engine_gets_the_session_configuration() {
        let mut config = SessionConfig {
            redundancy: Redundancy::NONE,
            ..SessionConfig::default()
        };
        config.fbdt.coupling = Coupling::Fair;
        let engine = engine_config(Role::Server, &config);
        assert_eq!(engine.redundancy, Redundancy::NONE);
        assert_eq!(engine.fbdt, config.fbdt);
        config.fbdt.windows[0].least = 1;
        assert_eq!(config.check(), Err(ConfigError::Window));
    }
}
