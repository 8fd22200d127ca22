"""Sequences of operations on roles and rights: at each step a role has what its person has, and nothing of a name."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from people import People

pytestmark = [pytest.mark.security, pytest.mark.slow, pytest.mark.usefixtures("pg_dump")]
NAMES = ("anna", "berta", "carl", "dora")
TEAMS = ("team", "crew")
DATASETS = ("d", "e")
ROLE, TEAM, DATASET = st.sampled_from(NAMES), st.sampled_from(TEAMS), st.sampled_from(DATASETS)
OPERATION = st.one_of(
    st.tuples(st.just("rename"), ROLE, ROLE),
    st.tuples(st.just("rename"), TEAM, TEAM),
    st.tuples(st.just("swap"), ROLE, ROLE),
    st.tuples(st.just("again"), ROLE),
    st.tuples(st.just("again"), TEAM),
    st.tuples(st.just("join"), ROLE, TEAM),
    st.tuples(st.just("leave"), ROLE, TEAM),
    st.tuples(st.just("grant"), DATASET, ROLE | TEAM),
    st.tuples(st.just("revoke"), DATASET, ROLE | TEAM),
    st.tuples(st.just("train"), DATASET, ROLE),
    st.tuples(st.just("predictors"), ROLE, ROLE | TEAM),
    st.tuples(st.just("restore"), st.sets(ROLE | TEAM)),
)


@dataclass
class Oracle:
    """Who has which right, by numbers of persons; a name is a person's only until the next operation.

    `has_not` are persons whose rights a restore left without a confirmation.
    """

    persons: dict[str, int] = field(default_factory=dict)
    made: int = 0
    teams: set[tuple[int, int]] = field(default_factory=set)
    registered: dict[str, int] = field(default_factory=dict)
    granted: set[tuple[str, int]] = field(default_factory=set)
    released: dict[int, tuple[str, int]] = field(default_factory=dict)
    predictors: set[tuple[int, int]] = field(default_factory=set)
    has_not: set[int] = field(default_factory=set)

    def create(self, name: str) -> None:
        self.persons[name], self.made = self.made, self.made + 1

    def of(self, name: str) -> set[int]:
        """The persons with rights that a role acts for: itself, and its teams."""
        person = self.persons[name]
        return ({person} | {team for member, team in self.teams if member == person}) - self.has_not

    def datasets(self, name: str) -> set[str]:
        own = self.of(name)
        return {d for d in DATASETS if self.registered[d] in own or any((d, each) in self.granted for each in own)}

    def models(self, name: str) -> set[int]:
        own = self.of(name)
        return {
            model
            for model, (dataset, person) in self.released.items()
            if person in own or self.registered[dataset] in own or any((model, each) in self.predictors for each in own)
        }

    def owner(self, dataset: str) -> str | None:
        """The name of the role that may grant on a dataset, if there is one."""
        names = [name for name, person in self.persons.items() if person == self.registered[dataset]]
        return names[0] if names and self.registered[dataset] not in self.has_not else None


class World:
    """Carries out operations in a database, and in the oracle."""

    def __init__(self, make_database: Callable[[], str]) -> None:
        self._make_database = make_database
        self._opened: list[People] = []
        self.people = self._open(make_database())
        self.people.connection.execute("create extension dbdp cascade")
        self.oracle = Oracle()
        for name in (*NAMES, *TEAMS):
            self.people.create(name, "owner")
            self.oracle.create(name)
        for name, dataset in zip(NAMES, DATASETS, strict=False):
            self.people.register(name, dataset)
            self.oracle.registered[dataset] = self.oracle.persons[name]

    def _open(self, url: str) -> People:
        connection = psycopg.connect(url, autocommit=True)
        endings = [each.ending for each in self._opened[:1]]
        self._opened.append(People(connection, url, *endings))
        return self._opened[-1]

    def close(self) -> None:
        for each in reversed(self._opened[1:]):
            each.leave_database()
            each.connection.close()
        self._opened[0].leave()
        self._opened[0].connection.close()

    def rename(self, name: str, new: str) -> None:
        """Give a role a name that another one has, which gets a new person's role afterwards: rename, and create."""
        if name == new:
            return
        self.again(new)
        self.people.swap(name, new)
        persons = self.oracle.persons
        persons[name], persons[new] = persons[new], persons[name]

    def swap(self, one: str, other: str) -> None:
        if one != other:
            self.people.swap(one, other)
            persons = self.oracle.persons
            persons[one], persons[other] = persons[other], persons[one]

    def again(self, name: str) -> None:
        """Drop a role, which keeps its table by a stranger, and create one of the same name."""
        full = self.people.full(name)
        for each in self._opened:
            each.connection.execute(f"reassign owned by {full} to postgres; drop owned by {full}")
        self.people.connection.execute(f"drop role {full}")
        self.people.create(name, "owner")
        gone = self.oracle.persons[name]
        self.oracle.teams = {pair for pair in self.oracle.teams if gone not in pair}
        self.oracle.create(name)

    def join(self, name: str, team: str) -> None:
        self.people.connection.execute(f"grant {self.people.full(team)} to {self.people.full(name)}")
        self.oracle.teams.add((self.oracle.persons[name], self.oracle.persons[team]))

    def leave(self, name: str, team: str) -> None:
        self.people.connection.execute(f"revoke {self.people.full(team)} from {self.people.full(name)}")
        self.oracle.teams.discard((self.oracle.persons[name], self.oracle.persons[team]))

    def grant(self, dataset: str, role: str) -> None:
        if (owner := self.oracle.owner(dataset)) and self.oracle.persons[role] not in self.oracle.has_not:
            self.people.grant(owner, dataset, role)
            self.oracle.granted.add((dataset, self.oracle.persons[role]))

    def revoke(self, dataset: str, role: str) -> None:
        right = (dataset, self.oracle.persons[role])
        owner = self.oracle.owner(dataset)
        if owner and right in self.oracle.granted and right[1] not in self.oracle.has_not:
            self.people.revoke(owner, dataset, self.people.full(role))
            self.oracle.granted.discard(right)

    def train(self, dataset: str, role: str) -> None:
        may = dataset in self.oracle.datasets(role) and self.oracle.persons[role] not in self.oracle.has_not
        try:
            model = self.people.train(role, dataset)
        except psycopg.Error as error:
            assert not may, error
            return
        assert may, (dataset, role)
        self.oracle.released[model] = (dataset, self.oracle.persons[role])

    def predictors(self, role: str, other: str) -> None:
        """Grant prediction with the models that a role released."""
        own, waits = self.oracle.persons[role], self.oracle.persons[other] in self.oracle.has_not
        for model, (_, person) in self.oracle.released.items():
            if person == own and own not in self.oracle.has_not and not waits:
                sql = "select dbdp.grant_prediction(%s, %s)"
                self.people.call(role, sql, model, self.people.full(other))
                self.oracle.predictors.add((model, self.oracle.persons[other]))

    def restore(self, confirmed: set[str]) -> None:
        """Go on in a restored dump, in which some of the roles that wait are confirmed."""
        dump = subprocess.run(["pg_dump", self.people.url], capture_output=True, check=True, text=True).stdout
        url = self._make_database()
        command = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", url]
        assert subprocess.run(command, input=dump, capture_output=True, check=False, text=True).stderr == ""
        ending = f"_{self.people.ending}"
        self.people = self._open(url)
        listed = self.people.connection.execute("select role_name from dbdp.unconfirmed_roles").fetchall()
        names = {name.removesuffix(ending) for (name,) in listed} & set(self.oracle.persons)
        self.oracle.has_not = {self.oracle.persons[name] for name in names - confirmed}
        for name in sorted(names & confirmed):
            self.people.connection.execute("select dbdp.confirm_role(%s)", (self.people.full(name),))

    def check(self) -> None:
        """Compare what each role sees with what its person has."""
        for name in self.oracle.persons:
            assert self.people.datasets(name) == self.oracle.datasets(name), name
            rows = self.people.call(name, "select id from dbdp.models")
            assert {model for (model,) in rows} == self.oracle.models(name), name


@pytest.fixture
def make_world(make_database: Callable[[], str]) -> Iterator[Callable[[], World]]:
    yield lambda: World(make_database)


@pytest.mark.attack("any-sequence")
def test_a_role_has_what_its_person_has_after_any_operations(make_world):
    """Rename, swap, drop and create again, teams, grants, trainings, restored dumps: names carry nothing."""

    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(OPERATION, min_size=4, max_size=14))
    def run(operations: list[tuple]) -> None:
        world = make_world()
        try:
            world.check()
            for what, *arguments in operations:
                event(what)
                getattr(world, what)(*arguments)
                world.check()
        finally:
            world.close()

    run()


@pytest.mark.attack("any-sequence")
def test_the_oracle_detects_rights_that_follow_names(make_world):
    """A control: an oracle that keeps persons with their names disagrees after a swap."""
    world = make_world()
    try:
        world.check()
        world.people.swap("anna", "carl")
        with pytest.raises(AssertionError):
            world.check()
    finally:
        world.close()
