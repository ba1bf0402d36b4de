import { Sandbox, Template, waitForPort, defaultBuildLogger } from 'e2b';
import { startTestService } from './support/service.ts';
const service = await startTestService({ runtime: (process.argv[2] ?? 'gvisor') as never });
try {
  const opts = service.connection as any;
  const make = (last: string) => Template({ fileContextPath: '/tmp/tplexp/ctx2' })
    .fromBaseImage()
    .runCmd('echo hi > /home/user/hi && whoami && pwd')
    .copy('app', '/opt/app', { user: 'root' })
    .copy('run.sh', '/usr/local/bin/', { mode: 0o755 })
    .setEnvs({ FOO: 'bar', PATH: '/opt/x:$PATH' })
    .setWorkdir('/srv/work')
    .runCmd('echo $FOO $PATH; pwd; touch here; ls -la /opt/app', { user: 'root' })
    .setUser('bob')
    .runCmd(last)
    .setStartCmd('python3 -m http.server 8000', waitForPort(8000));
  for (const last of ['id; run.sh', 'id; run.sh', 'id; run.sh; echo other']) {
    const t0 = Date.now();
    const info = await Template.build(make(last), 'my-tpl', { ...opts, cpuCount: 1, memoryMB: 512, onBuildLogs: (e: any) => console.log(e.level, e.message) });
    console.log('BUILT', Date.now() - t0, info);
  }
  const t1 = Date.now();
  const sbx = await Sandbox.create('my-tpl', opts);
  console.log('create', Date.now() - t1);
  const r = await service.fetchInside(sbx.sandboxId, '/', { headers: { 'X-Access-Token': (sbx as any).envdAccessToken ?? '' } }, 8000);
  console.log('port', r.status, Date.now() - t1);
  console.log((await sbx.commands.run('id; pwd; ls -la; echo "FOO=$FOO"; ps aux | head -20')).stdout);
  await sbx.kill();
  console.log(await Template.exists('my-tpl', opts), await Template.exists('nope', opts), await Template.getTags('my-tpl', opts));
  try { await Template.build(Template().fromBaseImage().runCmd('echo out; echo err >&2; exit 3'), 'bad', { ...opts, onBuildLogs: (e: any) => console.log(e.level, e.message) }); } catch (e) { console.log('ERR', (e as Error).name, (e as Error).message); }
} catch (e) { console.log(e); console.log(service.output.slice(-3000)); } finally { await service.dispose(); }
