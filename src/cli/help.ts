import { settings } from '../core/config.ts';

/** What `sandbar help` prints. */
export function helpText(): string {
  const rows = Object.values(settings).map((setting) => {
    const fallback = 'fallback' in setting ? ` (${setting.fallback})` : '';
    return `  --${setting.flag.padEnd(18)} ${setting.env.padEnd(26)} ${setting.help}${fallback}`;
  });
  return `Sandbar runs isolated sandboxes for AI agents and speaks the E2B protocol.

Usage: sandbar <command> [settings]

Commands:
  serve                       run the service
  setup                       prepare this machine: packages, runsc, agent, base template
                              (--again looks for a newer runsc, --for-tests adds what the tests need)
  doctor                      check host, kernel, cgroups, runtimes, network and disk
  keys create [--name NAME]   make an API key and print it, once
  keys list                   list the API keys
  keys revoke ID              make a key invalid
  tls                         make a certificate for the sandbox domain and say how to use it
  templates list              list the templates and what their layers take
  templates prune [--all]     remove builds and layers that nobody uses (--all: forget the build cache too)
  templates build code-interpreter
                              build the template that the code-interpreter packages use (--force: without the cache)
  version                     print the version
  help                        print this

Settings, by flag or by environment variable; the flag wins:
${rows.join('\n')}`;
}
