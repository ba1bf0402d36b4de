import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { chromium, type Page } from 'playwright-core';

// Opens a page in Debian's Chromium, which trusts one authority more and finds every name on this machine, and says what it saw.

const [url = '', authority = ''] = process.argv.slice(2);
const { hostname } = new URL(url);
const home = mkdtempSync(path.join(tmpdir(), 'sandbar-chromium-'));
process.env['HOME'] = home;
try {
  trust(authority);
  const browser = await chromium.launchPersistentContext(path.join(home, 'profile'), {
    executablePath: process.env['CHROMIUM'] ?? 'chromium',
    headless: true,
    args: ['--no-sandbox', `--host-resolver-rules=MAP *.${hostname.split('.').slice(1).join('.')} 127.0.0.1`],
  });
  const page = await browser.newPage();
  const response = await open(page);
  const status = response?.status() ?? 0;
  if (status !== 200) console.log(JSON.stringify({ status, text: await page.textContent('body') }));
  else {
    await page.waitForFunction("document.getElementById('state').textContent !== 'loading'", undefined, {
      timeout: 15_000,
    });
    const protocol = await page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol");
    console.log(JSON.stringify({ title: await page.title(), state: await page.textContent('#state'), protocol }));
  }
  await browser.close();
} finally {
  // A process of the browser's may still be writing there as it ends.
  rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}

/** Chromium gives up on a page when an interface of the machine comes or goes, which those of sandboxes do all the time. */
async function open(page: Page) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await page.goto(url);
    } catch (error) {
      if (attempt >= 10 || !String(error).includes('ERR_NETWORK_CHANGED')) throw error;
    }
  }
}

/** Adds an authority to those that the browser's user trusts, as `sandbar tls` says it. */
function trust(file: string): void {
  const database = path.join(home, '.pki/nssdb');
  mkdirSync(database, { recursive: true });
  execFileSync('certutil', ['-d', `sql:${database}`, '-N', '--empty-password']);
  execFileSync('certutil', ['-d', `sql:${database}`, '-A', '-t', 'C,,', '-n', 'sandbar', '-i', file]);
}
