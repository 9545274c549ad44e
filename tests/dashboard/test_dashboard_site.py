"""The web application: what it answers, what it refuses, and that hostile runs stay harmless."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from rl_training.dashboard.page import SCRIPTS, STYLES
from rl_training.dashboard.run_shelf import RunShelf
from rl_training.dashboard.site import host_name, make_site
from rl_training.program import program
from site_client import SiteClient
from stored_runs import store

GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


def client(folder: Path, *targets: str) -> SiteClient:
    return SiteClient(make_site(RunShelf(targets, folder)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = store(tmp_path / "runs", {100: 1.0, 200: 2.0}, losses={50: 0.5})
    (path / "videos").mkdir()
    (path / "videos" / "step-000000000100.gif").write_bytes(GIF)
    (path / "crash").mkdir()
    report = {"kind": "env failure", "reason": "boom " + HOSTILE, "env_step": 1234}
    (path / "crash" / "env-0-step-1234.json").write_text(json.dumps(report))
    return path


@pytest.fixture
def site(run: Path) -> SiteClient:
    return client(run.parent)


def test_pages_link_only_to_this_server(site: SiteClient) -> None:
    for path in ("/", "/run/ppo-seed0", "/compare?run=ppo-seed0"):
        answer = site.get(path)
        assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
        assert 'lang="en"' in answer.text and 'name="viewport"' in answer.text
        links = [part.split('"')[0] for part in answer.text.replace('href="', 'src="').split('src="')[1:]]
        assert all(link.startswith(("/", "#", "data:")) for link in links)
    assert site.get("/run/missing").status_code == 404


@pytest.mark.parametrize("name", [*STYLES, *SCRIPTS, "plotly.min.js"])
def test_files_of_the_page_are_served(site: SiteClient, name: str) -> None:
    answer = site.get(f"/static/{name}")
    assert answer.status_code == 200 and len(answer.content) > 500
    assert answer.headers["content-type"].startswith("text/css" if name.endswith(".css") else "text/javascript")


def test_the_rows_the_run_and_its_metrics(site: SiteClient, run: Path) -> None:
    rows = site.get("/api/runs").json()
    assert rows["names"] == ["ppo-seed0"] and rows["rows"][0]["last"] == 2.0
    assert site.get(f"/api/runs?after={rows['change']}").json()["rows"] == []

    about = site.get("/api/run/ppo-seed0").json()
    assert about["row"]["status"] == "finished"
    settings = {each["key"]: each for each in about["facts"]["settings"]}
    assert settings["algo"]["value"] == "ppo" and not settings["algo_kwargs.gamma"]["changed"]
    assert settings["total_timesteps"]["changed"]
    assert about["facts"]["versions"][0] == {"name": "python", "version": "3.11.7", "before": None}
    assert about["facts"]["sessions"][0]["command"] == "rl-training train x.yaml"
    assert about["facts"]["crashes"][0]["text"].startswith("boom") and "1,234" in about["facts"]["crashes"][0]["text"]
    assert about["facts"]["videos"][0]["steps"] == 100

    metrics = site.get("/api/run/ppo-seed0/metrics").json()
    assert metrics["series"]["loss"] == {"title": "Loss", "unit": "", "section": "losses", "x": [50], "y": [0.5]}
    assert metrics["complete"] and metrics["findings"] == []
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "env_steps": 300, "loss": 0.25}\n')
    again = site.get("/api/run/ppo-seed0/metrics", params={"from": metrics["cursor"]}).json()
    assert not again["restart"] and set(again["series"]) == {"loss"} and again["series"]["loss"]["x"] == [300]
    assert again["row"]["steps"] == 300


def test_the_commands_of_a_run_can_be_copied(tmp_path: Path) -> None:
    folder = tmp_path / "my runs"
    store(folder, {100: 1.0}, status="interrupted", model={"encoder": "my_nets.eyes:Eye"})
    damaged = store(folder, {100: 1.0}, seed=1)
    (damaged / "config.yaml").write_text("algo: [")
    site = client(folder)
    found = [site.get(f"/api/run/ppo-seed{seed}").json()["facts"]["commands"] for seed in (0, 1)]
    assert shlex.split(found[0]["resume"])[-4:] == ["resume", str(folder / "ppo-seed0"), "--trust", "my_nets.eyes"]
    assert shlex.split(found[1]["resume"])[-2:] == ["resume", str(damaged)]
    assert shlex.split(found[1]["reproduce"])[-2:] == ["reproduce", str(damaged / "crash" / "FILE")]
    assert found[0]["resume"].startswith(program())


def test_checkpoints_and_whether_they_verify(site: SiteClient, run: Path) -> None:
    golden = sorted((Path(__file__).parents[1] / "fixtures" / "checkpoints").rglob("checkpoints"))[0]
    shutil.copytree(golden, run / "checkpoints")
    if (golden.parent / "replay").is_dir():
        shutil.copytree(golden.parent / "replay", run / "replay")
    found = site.get("/api/run/ppo-seed0/checkpoints").json()["checkpoints"]
    assert found and all(each["problem"] is None and each["bytes"] > 0 for each in found)
    damaged = run / "checkpoints" / found[0]["name"]
    tensors = next(damaged.glob("*.safetensors"))
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    again = site.get("/api/run/ppo-seed0/checkpoints").json()["checkpoints"]
    assert again[0]["problem"].startswith(f"checkpoints/{damaged.name}/{tensors.name}: "), "inside of the run"
    assert [each["problem"] for each in again[1:]] == [None] * (len(found) - 1)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "GETS"])
def test_only_get(site: SiteClient, method: str) -> None:
    for path in ("/", "/api/runs", "/api/run/ppo-seed0", "/nothing"):
        assert site.request(method, path).status_code == 405


@pytest.mark.parametrize(
    "host", ["example.com", "example.com:8777", "127.0.0.1.example.com", "localhost.evil", "", "127.0.0.1@evil:80"]
)
def test_a_foreign_host_gets_nothing(site: SiteClient, host: str) -> None:
    for path in ("/", "/api/runs", "/static/app.js", "/media/ppo-seed0/step-000000000100.gif"):
        answer = site.get(path, headers={"host": host})
        assert answer.status_code == 421 and "ppo" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST:8777", "[::1]:8777", "[::1]"])
def test_names_of_this_machine_are_fine(site: SiteClient, host: str) -> None:
    assert site.get("/api/runs", headers={"host": host}).status_code == 200


def test_host_names() -> None:
    assert [host_name(each) for each in ("a:80", "[::1]:80", "[::1]", "A", "")] == ["a", "[::1]", "[::1]", "a", ""]


def test_headers_forbid_foreign_scripts_and_frames(site: SiteClient) -> None:
    for path in ("/", "/api/runs", "/nothing", "/static/app.js"):
        headers = site.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


ESCAPES = [
    "..", "../secret", "..%2fsecret", "%2e%2e/secret", "%2e%2e%2fsecret", "....//secret", "%252e%252e%252fsecret",
    "/etc/passwd", "%2fetc%2fpasswd", "ppo-seed0%00", "ppo-seed0/../../secret", "..\\secret", ".", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
def test_no_path_leads_out_of_the_runs(site: SiteClient, run: Path, name: str) -> None:
    secret = store(run.parent.parent, {100: 42.0}, name="secret")
    (secret / "videos").mkdir()
    (secret / "videos" / "a.gif").write_bytes(GIF + b"secret")
    for path in (f"/api/run/{name}", f"/api/run/{name}/metrics", f"/media/{name}/a.gif", f"/static/{name}"):
        answer = site.get(path)
        assert answer.status_code == 404 and "42" not in answer.text and b"secret" not in answer.content, path
    answer = site.get(f"/media/ppo-seed0/{name}")
    assert answer.status_code == 404
    answer = site.get("/api/compare", params={"run": name}).json()
    assert answer["of"] == 0 and "no such run" in answer["notes"][0]


def test_media_are_pictures_of_the_run_and_nothing_else(site: SiteClient, run: Path) -> None:
    picture = site.get("/media/ppo-seed0/step-000000000100.gif")
    assert picture.content == GIF and picture.headers["content-type"] == "image/gif"
    outside = run.parent.parent / "outside.gif"
    outside.write_bytes(GIF + b"outside")
    (run / "videos" / "link.gif").symlink_to(outside)
    (run / "videos" / "page.html").write_text("<script>alert(1)</script>")
    (run / "videos" / "folder.gif").mkdir()
    os.mkfifo(run / "videos" / "pipe.gif")
    for name in ("link.gif", "page.html", "folder.gif", "pipe.gif", "missing.gif", "..%2fconfig.yaml", "../run.json"):
        assert site.get(f"/media/ppo-seed0/{name}").status_code == 404, name
    assert len(site.get("/api/run/ppo-seed0").json()["facts"]["videos"]) == 1
    shutil.rmtree(run / "videos")
    (run / "videos").symlink_to(run.parent.parent)
    assert site.get("/media/ppo-seed0/outside.gif").status_code == 404


@pytest.mark.parametrize(
    "name", [HOSTILE.replace("/", "_"), "a b", "50%", "ä🎯", "-rf", "a?b#c", "'; DROP", "$(x)", "..a"]
)
def test_odd_names_are_names(tmp_path: Path, name: str) -> None:
    run = store(tmp_path, {100: 1.0})
    run.rename(tmp_path / name)
    site = client(tmp_path)
    (shown,) = site.get("/api/runs").json()["names"]
    assert shown == name
    address = quote(shown, safe="")
    assert site.get(f"/api/run/{address}").json()["row"]["last"] == 1.0
    assert site.get(f"/api/run/{address}/metrics").json()["series"]["eval_mean_return"]["y"] == [1]
    assert name not in site.get(f"/run/{address}").text, "the page has no name in it, so none can be markup"


def test_a_name_that_is_not_text_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    run = store(tmp_path, {100: 1.0})
    os.rename(run, os.fsencode(tmp_path) + b"/a\xff\xfeb")
    site = client(tmp_path)
    (shown,) = site.get("/api/runs").json()["names"]
    assert site.get(f"/api/run/{shown}").status_code == 200


def damage(run: Path, content: bytes) -> None:
    for name in ("run.json", "config.yaml", "metrics.jsonl", "findings.jsonl", "crash/env-0-step-1234.json"):
        (run / name).write_bytes(content)
    bad = run / "checkpoints" / "step-000000000100"
    bad.mkdir(parents=True, exist_ok=True)
    (bad / "manifest.json").write_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00" * 3000, b"\xff\xfe\n", b"{", b"[]\n", b"{}\n" * 50, b"null\n", b"[" * 100_000, b'{"a":' * 50_000,
        b'{"env_steps": 1e999, "loss": NaN}\n', b'{"kind": {}, "env_steps": 5, "loss": 1e400}\n', b"- &a [*a, *a]\n",
        b'{"env_steps": 99999999999999999999999, "eval_mean_return": -Infinity, "kind": "eval"}\n',
        b'{"kind": "train", "env_steps": 5, "' + HOSTILE.replace('"', "'").encode() + b'": 1}\n',
    ],
)  # fmt: skip
def test_damaged_files_are_answers_not_errors(site: SiteClient, run: Path, content: bytes) -> None:
    damage(run, content)
    for path in ("", "/metrics", "/checkpoints"):
        answer = site.get(f"/api/run/ppo-seed0{path}")
        assert answer.status_code == 200
        json.loads(answer.text, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert site.get("/api/runs").status_code == 200
    assert site.get("/api/compare?run=ppo-seed0").status_code == 200
    assert site.get("/api/run/ppo-seed0/checkpoints").json()["checkpoints"][0]["problem"]


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json", "config.yaml", "findings.jsonl", "crash"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "gone"])
def test_files_that_are_something_else(site: SiteClient, run: Path, name: str, kind: str) -> None:
    path = run / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if name == "run.json":
        (run / "checkpoints").mkdir()  # still a run
    if kind == "pipe":
        os.mkfifo(path)  # reading it would wait forever
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    for address in ("/api/runs", "/api/run/ppo-seed0", "/api/run/ppo-seed0/metrics", "/api/compare?run=ppo-seed0"):
        answer = site.get(address)
        assert answer.status_code == 200 and "root:" not in answer.text, address


def test_odd_questions(site: SiteClient) -> None:
    for query in ("after=x", "after=-1", "after=" + "9" * 400, "after=%00", "after=٣"):
        assert site.get(f"/api/runs?{query}").status_code == 200
    for query in ("from=x", "from=" + "9" * 4000, "from=%00", "from=-1"):
        assert site.get(f"/api/run/ppo-seed0/metrics?{query}").json()["restart"]
    assert site.get("/api/compare").json()["of"] == 0
    assert site.get("/api/compare?run=ppo-seed0&metric=%3Cb%3E").json()["panels"][0]["lines"] == []


def test_a_run_that_vanishes_is_gone(site: SiteClient, run: Path) -> None:
    assert site.get("/api/run/ppo-seed0/metrics").status_code == 200
    shutil.rmtree(run)
    answers: list[Any] = [site.get(f"/api/run/ppo-seed0{path}") for path in ("", "/metrics", "/checkpoints")]
    assert [answer.status_code for answer in answers] == [404] * 3
    assert site.get("/api/runs").json()["names"] == []
