//! Options of memcached, for command lines that are moved over.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgAction, Args};
use server::config::{Config, ListenAddress, Size};

/// Options under the names and with the units that memcached gives them.
#[derive(Args)]
#[command(next_help_heading = "Options of memcached")]
pub(crate) struct MemcachedArgs {
    /// TCP port, on 127.0.0.1 unless -l names addresses.
    #[arg(short = 'p', value_name = "PORT", conflicts_with = "listen")]
    port: Option<u16>,
    /// IP addresses to listen on, separated by commas.
    #[arg(
        short = 'l',
        value_name = "ADDRESS",
        value_delimiter = ',',
        conflicts_with = "listen"
    )]
    addresses: Vec<String>,
    /// Unix socket to listen on, instead of TCP.
    #[arg(short = 's', value_name = "PATH", conflicts_with_all = ["listen", "port", "addresses"])]
    socket: Option<PathBuf>,
    /// Permissions of the unix socket, in octal digits.
    #[arg(short = 'a', value_name = "MODE", value_parser = octal)]
    mode: Option<u32>,
    /// Memory in MiB, as --memory: of the whole process.
    #[arg(short = 'm', value_name = "MEGABYTES", conflicts_with = "memory")]
    megabytes: Option<u64>,
    /// As --max-connections.
    #[arg(short = 'c', value_name = "N", conflicts_with = "max_connections")]
    connections: Option<usize>,
    /// As --threads.
    #[arg(short = 't', value_name = "N", conflicts_with = "threads")]
    workers: Option<usize>,
    /// As --max-item-size; k and m are KiB and MiB.
    #[arg(short = 'I', value_name = "SIZE", value_parser = item_size, conflicts_with = "max_item_size")]
    item_size: Option<Size>,
    /// More lines of the log: -v for log.level=debug, -vv for trace.
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// UDP port; only 0, for none.
    #[arg(short = 'U', value_name = "0", hide = true)]
    udp: Option<u16>,
    #[arg(short = 'u', hide = true)]
    user: Option<String>,
    #[arg(short = 'd', hide = true)]
    daemon: bool,
}

impl MemcachedArgs {
    /// Applies the options to the settings.
    pub(crate) fn apply(self, config: &mut Config) -> Result<(), String> {
        if self.udp.is_some_and(|port| port > 0) {
            return Err("-U: there is no UDP; leave it out, or write -U 0".to_owned());
        }
        if let Some(user) = self.user {
            return Err(format!(
                "-u: the server keeps the user that starts it; start it as {user}, with the service manager"
            ));
        }
        if self.daemon {
            return Err(
                "-d: the server stays in the foreground; run it under a service manager".to_owned(),
            );
        }
        let server = &mut config.server;
        if let Some(path) = self.socket {
            server.listen = vec![ListenAddress::Unix(path)];
        } else if self.port.is_some() || !self.addresses.is_empty() {
            server.listen = addresses(&self.addresses, self.port.unwrap_or(11211))?;
        }
        server.unix_mode = self.mode.unwrap_or(server.unix_mode);
        server.max_connections = self.connections.or(server.max_connections);
        server.threads = self.workers.unwrap_or(server.threads);
        let cache = &mut config.cache;
        let memory = self
            .megabytes
            .map(|megabytes| Size(megabytes.saturating_mul(1 << 20)));
        cache.memory = memory.or(cache.memory);
        cache.max_item_size = self.item_size.or(cache.max_item_size);
        match self.verbose {
            0 => {}
            1 => config.log.level = "debug".to_owned(),
            _ => config.log.level = "trace".to_owned(),
        }
        Ok(())
    }
}

/// Returns the addresses of `-l`, each with its own port or `port`.
fn addresses(given: &[String], port: u16) -> Result<Vec<ListenAddress>, String> {
    if given.is_empty() {
        return Ok(vec![ListenAddress::Tcp(([127, 0, 0, 1], port).into())]);
    }
    let address = |text: &String| match text.parse::<IpAddr>() {
        Ok(address) => Ok(ListenAddress::Tcp(SocketAddr::new(address, port))),
        Err(_) if text.contains(':') => text.parse(),
        Err(_) => format!("{text}:{port}").parse(),
    };
    let all: Result<Vec<_>, String> = given.iter().map(address).collect();
    all.map_err(|error| format!("-l: {error}"))
}

fn octal(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8).map_err(|_| "write octal digits, as 700".to_owned())
}

fn item_size(text: &str) -> Result<Size, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], "KiB"),
        Some(b'm' | b'M') => (&text[..text.len() - 1], "MiB"),
        _ => (text, ""),
    };
    format!("{digits}{unit}").parse()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        serve: crate::serve::ServeArgs,
    }

    fn config(line: &str) -> Result<Config, String> {
        let words = ["serve"].into_iter().chain(line.split_whitespace());
        let options = Options::try_parse_from(words).map_err(|error| error.to_string())?;
        options.serve.config(&device::NoDevices)
    }

    #[test]
    fn a_usual_command_line_of_memcached_is_understood() {
        let config = config("-m 64 -p 11311 -I 10m -c 1024 -t 3 -U 0 -v").unwrap();
        let (server, cache) = (&config.server, &config.cache);
        assert_eq!(server.listen, ["127.0.0.1:11311".parse().unwrap()]);
        assert_eq!((server.max_connections, server.threads), (Some(1024), 3));
        assert_eq!(cache.memory, Some(Size(64 << 20)));
        assert_eq!(cache.max_item_size, Some(Size(10 << 20)));
        assert_eq!(config.log.level, "debug");
    }

    #[test]
    fn addresses_and_sockets_are_those_of_memcached() {
        let listen = |line| config(line).map(|config| config.server.listen);
        let all = [
            "0.0.0.0:11211".parse().unwrap(),
            "[::1]:11211".parse().unwrap(),
        ];
        assert_eq!(listen("-l 0.0.0.0,::1").unwrap(), all);
        assert_eq!(
            listen("-l 127.0.0.1:7 -p 9").unwrap(),
            ["127.0.0.1:7".parse().unwrap()]
        );
        assert_eq!(
            listen("-s /run/x -a 660").unwrap(),
            ["unix:/run/x".parse().unwrap()]
        );
        assert_eq!(config("-s /run/x -a 660").unwrap().server.unix_mode, 0o660);
        assert_eq!(listen("").unwrap(), ["127.0.0.1:11211".parse().unwrap()]);
    }

    #[test]
    fn options_without_a_meaning_here_are_refused_with_the_way_out() {
        for (line, told) in [
            ("-d", "service manager"),
            ("-u memcache", "start it as memcache"),
            ("-U 11211", "-U 0"),
            ("-m 64 --memory 1GiB", "cannot be used"),
            ("-l no-such-host.invalid", "-l:"),
            ("-I ten", "no size"),
            ("-a 9", "octal"),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
