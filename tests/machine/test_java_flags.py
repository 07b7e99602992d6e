"""What a kernel and a Java list, read as they list it; silent where nothing answers."""

from tlb.machine import stated_facts as flags


def test_a_computers_own_words_are_read_as_it_lists_them(tmp_path):
    path = tmp_path / flags.DEFRAG.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text("always defer defer+madvise [madvise] never\n")
    java = (
        "printf",
        "[Global flags]\\n"
        "  bool UseTransparentHugePages = false {product}\\n  intx Other := 3 {product}\\n",
    )
    told = flags.ask_flags("a" * 12, tmp_path, java)
    assert told.defrag_modes == (
        "always",
        "defer",
        "defer+madvise",
        "madvise",
        "never",
    ) and told.java_flags == ("UseTransparentHugePages",)
    assert told.java_on == ()
    lists = "bool UseLargePages = true {pd product}\\n "
    lists += "bool UseTransparentHugePages = false {product} {default}\\n"
    assert flags.ask_flags("a" * 12, tmp_path, ("printf", lists)).java_on == ("UseLargePages",)
    silent = flags.ask_flags("a" * 12, tmp_path / "nowhere", ("false",))
    assert silent.defrag_modes == () and silent.java_flags is silent.java_on is None
    assert flags.ask_flags("a" * 12, tmp_path, ("no-such-java",)).java_flags is None
