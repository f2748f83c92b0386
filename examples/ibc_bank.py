"""Two banks that don't trust each other, and transfers between them in which no money is lost or made.

What is sent away is in flight until its receipt is back: then it backs the vouchers of the other bank, or is paid
back. A relay that repeats, forgets or forges changes nothing of that.
"""

from contextlib import suppress
from random import Random

from surepipe.queues.ibc import Fail, Module, Party, Relay, Transaction


def amount_at(tx: Transaction, key: str) -> int:
    """Of an account, of what is in flight, of the backing."""
    return int(tx.get(key.encode()) or b"0")


def add(tx: Transaction, key: str, amount: int) -> None:
    """Change an amount; none is ever below 0."""
    left = amount_at(tx, key) + amount
    if left < 0:
        raise ValueError(f"{key} has no {-amount}")
    tx.set(key.encode(), b"%d" % left)


class Bank:
    """The home of its own tokens, and an issuer of vouchers for those of others."""

    def __init__(self, party: Party) -> None:
        self.module: Module = party.module("bank")
        self.module.handle(
            "bank/out", on_receive=self.issue, on_commit=self.back, on_rollback=self.pay_back
        )
        self.module.handle(
            "bank/home", on_receive=self.release, on_commit=self.burn, on_rollback=self.reissue
        )

    def open(self, account: str, amount: int = 0) -> None:
        """Open an account."""
        self.module.execute(lambda tx: tx.set(f"account/{account}".encode(), b"%d" % amount))

    def transfer(self, to: str, account: str, amount: int, *, kind: str = "out") -> None:
        """Send tokens away (``out``), or vouchers home; in flight until the receipt is back."""

        def work(tx: Transaction) -> None:
            own = "account" if kind == "out" else f"voucher/{to}"
            add(tx, f"{own}/{account}", -amount)
            add(tx, f"in_flight/{kind}/{to}", amount)
            data = f"{account} {amount}".encode()
            tx.send(to, f"bank/{kind}", data, timeout_after_s=30)

        self.module.execute(work)

    # Tokens that go out: here they become backing, there vouchers.

    def issue(self, tx: Transaction, data: bytes) -> bytes | Fail:
        """At the other bank: vouchers for who has an account."""
        account, amount = data.decode().split()
        if tx.get(f"account/{account}".encode()) is None:
            return Fail(100, b"no such account")
        add(tx, f"voucher/{tx.connection}/{account}", int(amount))
        return b"issued"

    def back(self, tx: Transaction, data: bytes, _: bytes) -> None:
        """They are out now."""
        amount = int(data.split()[1])
        add(tx, f"in_flight/out/{tx.connection}", -amount)
        add(tx, f"backing/{tx.connection}", amount)

    def pay_back(self, tx: Transaction, data: bytes, _: int, __: bytes) -> None:
        """They never left."""
        account, amount = data.decode().split()
        add(tx, f"in_flight/out/{tx.connection}", -int(amount))
        add(tx, f"account/{account}", int(amount))

    # Vouchers that come home: there they are burnt, here the tokens are released.

    def release(self, tx: Transaction, data: bytes) -> bytes | Fail:
        """At the home of the tokens."""
        account, amount = data.decode().split()
        if amount_at(tx, f"backing/{tx.connection}") < int(amount):
            return Fail(101, b"more vouchers than were issued")
        if tx.get(f"account/{account}".encode()) is None:
            return Fail(100, b"no such account")
        add(tx, f"backing/{tx.connection}", -int(amount))
        add(tx, f"account/{account}", int(amount))
        return b"released"

    def burn(self, tx: Transaction, data: bytes, _: bytes) -> None:
        """They are home."""
        add(tx, f"in_flight/home/{tx.connection}", -int(data.split()[1]))

    def reissue(self, tx: Transaction, data: bytes, _: int, __: bytes) -> None:
        """They stay vouchers."""
        account, amount = data.decode().split()
        add(tx, f"in_flight/home/{tx.connection}", -int(amount))
        add(tx, f"voucher/{tx.connection}/{account}", int(amount))

    # Looking.

    def total(self, *places: str) -> int:
        """The sum over all that begins so."""
        rows = self.module.execute(lambda tx: tx.scan())
        return sum(int(value) for key, value in rows if key.decode().startswith(places))


def tokens(home: Bank) -> int:
    """Of a bank: in accounts, in flight, and backing vouchers elsewhere. It never changes."""
    return home.total("account/", "in_flight/out/", "backing/")


def vouchers(bank: Bank) -> int:
    """Issued here and not burnt. Never more than what backs them and is in flight there."""
    return bank.total("voucher/", "in_flight/home/")


def main(rounds: int = 300, seed: int = 1) -> None:
    """Random transfers in both directions, some to accounts that don't exist."""
    rng = Random(seed)
    with Party("east") as east, Party("west") as west:
        banks = {"east": Bank(east), "west": Bank(west)}
        east.register("west", west.identity())
        west.register("east", east.identity())
        for bank in banks.values():
            bank.open("ann", 1_000)
            bank.open("bob", 1_000)
        banks["east"].open("eve", 500)  # the west knows no eve
        supply = {name: tokens(bank) for name, bank in banks.items()}
        with Relay([(east, west)]) as relay:
            for _ in range(rounds):
                name, to = rng.choice([("east", "west"), ("west", "east")])
                kind = rng.choice(["out", "home"])
                account, amount = rng.choice(["ann", "bob", "eve"]), rng.randint(1, 90)
                with suppress(ValueError):  # there isn't enough: nothing was changed
                    banks[name].transfer(to, account, amount, kind=kind)
                if rng.random() < 0.3:
                    relay.run_once()
                assert {n: tokens(bank) for n, bank in banks.items()} == supply
            relay.settle(timeout_s=30)
        for name, other in (("east", "west"), ("west", "east")):
            assert tokens(banks[name]) == supply[name]
            assert vouchers(banks[other]) == banks[name].total("backing/")
            print(
                f"{name}: {supply[name]} tokens, {vouchers(banks[other])} of them as vouchers at {other}"
            )


if __name__ == "__main__":
    main()
